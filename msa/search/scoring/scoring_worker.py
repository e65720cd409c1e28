"""The process that scores candidates; see msa.gpu.scoring_process.

Requests are those of `msa.gpu.requests.Requests`, by name:

    open    path of a database, its manifest, ScoringRules; searches are numbered in this order. No answer
    score   number of the search, AlignedBatch; the answer is Scores
"""

import contextlib
import os
import socket
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msa.base.child_process import ignore_stop_signals
from msa.base.errors import InputError, MissingError
from msa.base.interpreted import budget
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.engines.scored_batch import Scores
from msa.gpu.device.process_state import SWITCH_SECONDS, without_collection
from msa.gpu.requests import RemoteAligner, Requests
from msa.gpu.worker.interface import ALIGNMENT_THREADS
from msa.gpu.worker.worker_process import WorkerFailure
from msa.search.scoring.candidate_scorer import CandidateScorer
from msa.search.scoring.compiled_scoring import call_scoring_kernels

# batches that are scored at once; each mostly waits for the GPU
_THREADS = 1 + ALIGNMENT_THREADS


def main() -> None:
    """Serve the socket whose file descriptor is the first argument, until its other end is closed.

    The second argument is the number of the GPU, and the third the file descriptor of a socket to the process
    that drives it.
    """
    ignore_stop_signals()
    sys.setswitchinterval(SWITCH_SECONDS)
    budget.load_in_background(_load_kernels)
    aligner = RemoteAligner(Requests(int(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))))
    _serve(Connection(int(sys.argv[1])), aligner)
    # do not wait for other threads
    os._exit(0)


def _load_kernels() -> None:
    with without_collection():
        call_scoring_kernels(with_forward=True)


def _serve(connection: Connection, aligner: RemoteAligner) -> None:
    """Answer requests until the other end is closed, or a database cannot be opened."""
    threads = ThreadPoolExecutor(_THREADS, "scores")
    send_lock = threading.Lock()
    scorers: list[CandidateScorer] = []

    def answer(number: int, done: "Future[Scores]") -> None:
        error = done.exception()
        value: Any = done.result() if error is None else WorkerFailure.from_exception(error)
        # the loop below notices when the connection is closed
        with send_lock, contextlib.suppress(OSError):
            connection.send((number, error is not None, value))

    with contextlib.suppress(EOFError, OSError):
        while True:
            number, name, arguments = connection.recv()
            if name == "score":
                search, batch = arguments
                threads.submit(scorers[search].score, batch).add_done_callback(partial(answer, number))
                continue
            path, manifest, rules = arguments
            if (database := _open(path, manifest)) is None:
                return
            scorers.append(CandidateScorer(database, rules, aligner))


def _open(path: Path, manifest: DatabaseManifest) -> TargetDatabase | None:
    """Open a database; return None if its folder was replaced after the search had opened it."""
    try:
        database = TargetDatabase.open(path)
    except (InputError, MissingError):
        return None
    return database if database.manifest == manifest else None
