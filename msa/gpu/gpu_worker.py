"""One GPU of a search as the group it belongs to sees it, in this process or in one of its own.

Nothing here, nor in what this imports, needs numba: a process whose GPUs are served by others never loads it.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.devices import Gpu
from msa.gpu.limits import Limits
from msa.search.engine import QueryProfile


@dataclass(frozen=True)
class Best:
    """The best targets of a batch's queries among those that one GPU holds.

    Args:
        counts: int64 [queries], how many there are of each, its best or all that pass.
        places: int64 [n], in the database, those of one query after those of another.
        scores: int32 [n], half-bits.
    """

    counts: np.ndarray
    places: np.ndarray
    scores: np.ndarray

    def of_each(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Places and scores of each query."""
        ends = np.cumsum(self.counts).tolist()
        starts = [0, *ends[:-1]]
        return [(self.places[a:b], self.scores[a:b]) for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class Paths:
    """Alignments of some pairs.

    Args:
        found: int32 [n, ≥ 7], score, first and last place in the query and in the target from 0, identities,
            columns; see cuda.alignment.smith_waterman.Alignments.
        runs: int32 [runs], of all of them; see LocalAlignment.
        starts: int64 [n + 1], where each one's begin.
    """

    found: np.ndarray
    runs: np.ndarray
    starts: np.ndarray


class Aligning(Protocol):
    """A batch of queries that a GPU aligns to targets: `scores`, then `paths`, each once.

    Between them, `scores` of reversed profiles any number of times.
    """

    def scores(
        self, owners: np.ndarray, places: np.ndarray, gaps: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Scores of alignments, int32 [n], half-bits.

        Args:
            owners: int32 [n], index in the batch.
            places: int64 [n], places of targets, which of a batch that was filtered this GPU holds.
            gaps: costs of a gap's first residue and each further one, half-bits.
            reverse: against the reversed profiles; `paths` does not follow these.
        """
        ...

    def paths(self, kept: np.ndarray) -> "Future[Paths]":
        """The alignments of the pairs at some places, int64, of those scored."""
        ...


class Batch(Aligning, Protocol):
    """A batch of queries that a GPU filters, `best`, before it aligns."""

    def best(self) -> "Future[Best]":
        """What the filter found."""
        ...


class Member(Protocol):
    """One GPU. What it is asked for is done in the order of the calls; one search at a time."""

    @property
    def gpu(self) -> Gpu:
        """Which it is."""
        ...

    @property
    def budget(self) -> int:
        """Bytes of GPU memory that targets may take."""
        ...

    @property
    def stays(self) -> bool:
        """Whether the targets stay on the GPU, as far as is known."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """What each stage has taken so far: "queueing" and "alignment" on the host, "filter" on the GPU."""
        ...

    def hold(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Have these targets from now on; their copy begins at once.

        Args:
            targets: the database.
            part: first target and end of those to hold.
        """
        ...

    def filter(
        self, batch: Sequence[QueryProfile], limits: Limits, again: bool, stopped: threading.Event
    ) -> Batch:
        """Queue the filter of a batch.

        Args:
            batch: the queries.
            limits: what passes.
            again: whether another batch follows.
            stopped: of this search; once set, nothing more is queued, and what is found is worth nothing.
        """
        ...

    def aligning(self, batch: Sequence[QueryProfile], targets: SequenceArrays) -> Aligning:
        """A batch that is to be aligned to other targets than those held, which go to the GPU as needed."""
        ...

    def drain(self) -> "Future[None]":
        """Give up the search under way, whose `stopped` has been set, and wait for all that is queued."""
        ...

    def rest(self) -> "Future[None]":
        """Give back GPU memory that is not needed between searches; nothing is under way."""
        ...

    def close(self) -> None:
        """Give back the GPU; nothing is asked for any more."""
        ...
