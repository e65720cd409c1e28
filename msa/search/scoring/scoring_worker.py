"""The process that scores candidates; see msa.gpu.remote_worker."""

import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from msa.base.errors import InputError, MissingError
from msa.base.services.requests import Requests
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules
from msa.gpu.device.process_state import SWITCH_SECONDS
from msa.gpu.remote_worker import RemoteAligner
from msa.gpu.worker.interface import ALIGNMENT_THREADS
from msa.gpu.worker.process_start import process_ended
from msa.search.scoring.candidate_scorer import CandidateScorer, load_kernels

# batches that are scored at once; each mostly waits for the GPU
_THREADS = 1 + ALIGNMENT_THREADS


class ScoringHandler:
    """A scorer of candidates, for requests of the searching process."""

    def __init__(self, report: Callable[..., None], gpu: int, descriptor: int) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        requests = Requests(socket.socket(fileno=descriptor), partial(process_ended, gpu))
        requests.receive_in_background("alignments")
        self._aligner = RemoteAligner(requests.request)
        self._threads = ThreadPoolExecutor(_THREADS, "scores")
        # while the GPU's process starts; the first use reports errors
        self._threads.submit(load_kernels)
        self._scorers: list[CandidateScorer] = []

    def open(self, path: Path, manifest: DatabaseManifest, rules: ScoringRules) -> None:
        """Open the database of a search; searches are numbered in the order of these calls.

        The process ends if the folder was replaced after the search had opened it.
        """
        try:
            database = TargetDatabase.open(path)
        except (InputError, MissingError):
            raise SystemExit from None
        if database.manifest != manifest:
            raise SystemExit
        self._scorers.append(CandidateScorer(database, rules, self._aligner))

    def score(self, search: int, batch: AlignedBatch) -> "Future[Scores]":
        """Score candidates of a search, given by its number."""
        return self._threads.submit(self._scorers[search].score, batch)
