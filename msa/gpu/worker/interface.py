"""The inputs and outputs of GPU workers, in this process or in a separate one.

Neither this module nor its imports need numba, so a process whose GPUs are driven by other processes never
loads it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

ALIGNMENT_THREADS = 3
"""Batches that are aligned at once on a GPU. An alignment takes several steps, which wait for blocks of the
filter to end, and for the host."""


@dataclass(frozen=True)
class GpuSettings:
    """Settings of the GPU engine. Search results do not depend on them.

    Args:
        kernels: folder that keeps compiled kernels between runs.
        memory_fraction: maximum fraction of a GPU's free memory that the database may use.
        max_database_bytes: maximum memory that the database may use on each GPU; None for no limit.
        max_chunk_bytes: maximum residues per chunk; None for the default of database_stream.py.
    """

    kernels: Path
    memory_fraction: float = 0.9
    max_database_bytes: int | None = None
    max_chunk_bytes: int | None = None

    def database_budget(self, free_bytes: int) -> int:
        """Return the bytes that a database may use on a GPU with this much free memory."""
        budget = int(self.memory_fraction * free_bytes)
        return budget if self.max_database_bytes is None else min(budget, self.max_database_bytes)


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
