"""The process that scores candidates; see msa.gpu.remote_worker."""

import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from msa.base.errors import InputError, MissingError
from msa.base.services.requests import Requests
from msa.base.switch_interval import shorten_switch_interval
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.engines.engine import Candidates, EngineRequest
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules
from msa.gpu.group import align_pairs
from msa.gpu.remote_worker import RemoteAligner
from msa.gpu.worker.interface import ALIGNMENT_THREADS
from msa.gpu.worker.process_start import process_ended
from msa.profile.pssm import QueryProfile, context_tables
from msa.profile.statistics import fill_evalues
from msa.search.scoring import kernels
from msa.search.scoring.candidate_scorer import CandidateScorer
from msa.search.scoring.composition import count_residues

# batches that are scored at once; each mostly waits for the GPU
_THREADS = 1 + ALIGNMENT_THREADS


class ScoringHandler:
    """A scorer of candidates, for requests of the searching process.

    Args:
        report: not used.
        gpu: number of the GPU.
        descriptor: of a socket to the process that drives it.
    """

    def __init__(self, report: Callable[..., None], gpu: int, descriptor: int) -> None:
        shorten_switch_interval()
        requests = Requests(socket.socket(fileno=descriptor), partial(process_ended, gpu))
        requests.receive_in_background("alignments")
        self._aligner = _Aligner(requests.request)
        self._threads = ThreadPoolExecutor(_THREADS, "scores")
        # while the GPU's process starts; the first use reports errors
        self._threads.submit(_load_kernels)
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


class _Aligner(RemoteAligner):
    """Implements msa.engines.engine.Aligner."""

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        return align_pairs([self], pairs, request)


def _load_kernels() -> None:
    """Call each compiled kernel once on tiny arrays, so that numba loads or compiles it."""
    residues, integers, numbers = np.zeros(1, np.uint8), np.ones(1, np.int64), np.ones(1)
    # like those of a database
    residues.flags.writeable = False
    fill_evalues(integers, integers, integers, numbers, 1, (1.0,) * 7, numbers)
    count_residues(residues, integers, integers, np.zeros((1, 1), np.int64))
    kernels.fill_forward_scores(
        context_tables(), np.ones(256), 0.5, 0.5, residues, np.array([[0, 0, 1, 1]]), residues.copy(),
        np.array([[0, 1]]), np.zeros((1, 2)),
    )  # fmt: skip
