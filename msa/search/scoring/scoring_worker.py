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

import numpy as np

from msa.base.child_process import ignore_stop_signals
from msa.base.errors import InputError, MissingError
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.engines.scored_batch import Scores
from msa.gpu.device.process_state import SWITCH_SECONDS
from msa.gpu.requests import RemoteAligner, Requests
from msa.gpu.worker.interface import ALIGNMENT_THREADS
from msa.gpu.worker.worker_process import WorkerFailure
from msa.profile.compiled_statistics import fill_evalues
from msa.profile.pssm import context_tables
from msa.search.scoring import kernels
from msa.search.scoring.candidate_scorer import CandidateScorer

# batches that are scored at once; each mostly waits for the GPU
_THREADS = 1 + ALIGNMENT_THREADS


def main() -> None:
    """Serve the socket whose file descriptor is the first argument, until its other end is closed.

    The second argument is the number of the GPU, and the third the file descriptor of a socket to the process
    that drives it.
    """
    ignore_stop_signals()
    sys.setswitchinterval(SWITCH_SECONDS)
    aligner = RemoteAligner(Requests(int(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))))
    _serve(Connection(int(sys.argv[1])), aligner)
    # do not wait for other threads
    os._exit(0)


def _serve(connection: Connection, aligner: RemoteAligner) -> None:
    """Answer requests until the other end is closed, or a database cannot be opened."""
    threads = ThreadPoolExecutor(_THREADS, "scores")
    # while the GPU's process starts; the first use reports errors
    threads.submit(_load_kernels)
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


def _load_kernels() -> None:
    """Call each compiled kernel once on tiny arrays, so that numba loads or compiles it."""
    residues, integers, numbers = np.zeros(1, np.uint8), np.ones(1, np.int64), np.ones(1)
    # like those of a database
    residues.flags.writeable = False
    fill_evalues(integers, integers, integers, numbers, 1, (1.0,) * 7, numbers)
    kernels.count_residues(residues, integers, integers, np.zeros((1, 1), np.int64))
    kernels.fill_forward_scores(
        context_tables(), np.ones(256), 0.5, 0.5, residues, np.array([[0, 0, 1, 1]]), residues.copy(),
        np.array([[0, 1]]), np.zeros((1, 2)),
    )  # fmt: skip
