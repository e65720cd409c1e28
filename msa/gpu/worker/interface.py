"""The interface of one GPU, driven by this process or by a separate process.

Neither this module nor its imports need numba, so a process whose GPUs are driven by other processes never
loads it.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.query_profile import QueryProfile
from msa.engines.settings import SearchSettings
from msa.gpu.device.devices import Gpu

ALIGNMENT_THREADS = 3
"""Batches that are aligned at once on a GPU. An alignment takes several steps, which wait for blocks of the
filter to end, and for the host."""


@dataclass(frozen=True)
class GpuSettings:
    """Settings of the GPU engine. Search results do not depend on them.

    Args:
        kernels: folder that keeps compiled kernels between runs.
        memory_fraction: maximum fraction of a GPU's free memory that the database may use.
        max_database_bytes: maximum memory that the database may use on each GPU.
        max_chunk_bytes: maximum residues per chunk; None for the default of database_stream.py.
    """

    kernels: Path
    memory_fraction: float = 0.9
    max_database_bytes: int = 2**62
    max_chunk_bytes: int | None = None

    def database_budget(self, free_bytes: int) -> int:
        """Return the bytes that a database may use on a GPU with this much free memory."""
        return min(int(self.memory_fraction * free_bytes), self.max_database_bytes)


@dataclass(frozen=True)
class BestTargets:
    """The best targets of each query of a batch, among those on one GPU.

    Args:
        counts: int64 [queries], number of targets of each query: its best, or all that pass the filter.
        targets: int64 [n], database indices, concatenated over the queries; those of a query are sorted by
            descending score, then by index.
        scores: int32 [n], gapless scores, half-bits.
    """

    counts: np.ndarray
    targets: np.ndarray
    scores: np.ndarray

    def per_query(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return targets and scores of each query."""
        ends = np.cumsum(self.counts).tolist()
        starts = [0, *ends[:-1]]
        return [(self.targets[a:b], self.scores[a:b]) for a, b in zip(starts, ends, strict=True)]


class AlignmentBatch(Protocol):
    """A batch of queries that a GPU aligns to targets.

    `scores` and then `paths` are called once each; in between, `scores` with `reverse` may be called any
    number of times.
    """

    def scores(
        self, owners: np.ndarray, targets: np.ndarray, gap_costs: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Compute alignment scores, int32 [n], half-bits.

        Args:
            owners: int32 [n], index of the query in the batch.
            targets: int64 [n], database indices. In a filtered batch, this GPU must hold them.
            gap_costs: cost of a gap's first residue and of each further one, half-bits.
            reverse: align to the reversed profiles; `paths` does not refer to these scores.
        """
        ...

    def paths(self, selected: np.ndarray) -> "Future[AlignmentPaths]":
        """Compute the alignments of some of the scored pairs, given by int64 indices."""
        ...


class FilteredBatch(AlignmentBatch, Protocol):
    """A batch of queries that a GPU filters before it aligns."""

    def best(self) -> "Future[BestTargets]":
        """Return the result of the filter."""
        ...


class AligningWorker(Protocol):
    """One GPU, as far as it aligns queries to given targets."""

    def alignment_batch(self, queries: Sequence[QueryProfile], targets: SequenceArrays) -> AlignmentBatch:
        """Return a batch to align to any targets; they are copied to the GPU as needed."""
        ...


class GpuWorker(AligningWorker, Protocol):
    """One GPU. It executes requests in the order of the calls, for one search at a time."""

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        ...

    @property
    def database_budget(self) -> int:
        """Bytes of GPU memory that targets may use."""
        ...

    @property
    def resident(self) -> bool:
        """True if the targets stay in GPU memory between passes, as far as is known."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per stage so far: "queueing" and "alignment" on the host, "filter" on the GPU."""
        ...

    def load(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Use these targets from now on; their copy to the GPU starts at once.

        Args:
            targets: the database.
            part: first target and end (exclusive) of this GPU's part.
        """
        ...

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """Compile all kernels for queries of these lengths, before the filter of later calls begins.

        Args:
            lengths: residues of the queries.
            many_pairs: include the kernels that only pay off for many pairs.
        """
        ...

    def filter(
        self,
        queries: Sequence[QueryProfile],
        settings: SearchSettings,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> FilteredBatch:
        """Queue the filter of a batch.

        Args:
            queries: the batch.
            settings: limits of the filter.
            more_follow: whether another batch follows.
            cancelled: once set, no more work of this search is queued, and results are meaningless.
        """
        ...

    def drain(self) -> "Future[None]":
        """Abandon the current search, whose `cancelled` is set, and wait for all queued work."""
        ...

    def release_unused(self) -> "Future[None]":
        """Release GPU memory that is not needed between searches; nothing may be in progress."""
        ...

    def close(self) -> None:
        """Release the GPU; no requests may follow."""
        ...
