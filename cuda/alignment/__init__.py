"""GPU kernels for sequence alignment, written with numba.cuda, and the arrays that they take and return.

`gapless` scores targets without gaps, `top_k` selects the best-scoring targets of a query, and
`smith_waterman` computes gapped alignments. numba is imported only to compile a kernel; `device` holds arrays
and queues work through the CUDA driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DeviceSequences:
    """Target sequences in the memory of the current GPU, in the format of a target database.

    Args:
        residues: device uint8 [bytes], letter codes with the mask bit.
        offsets: device int64 [n], index in `residues` of the first residue of each sequence.
        lengths: device int32 [n], number of residues of each sequence.
    """

    residues: Any
    offsets: Any
    lengths: Any


@dataclass(frozen=True)
class AlignmentPaths:
    """Local alignments of query–target pairs, with their paths as run lengths.

    Args:
        records: int32 [n, 8]: score, first and last query position, first and last target position (from 0,
            inclusive), identical pairs, alignment columns, runs. All zero where the score is zero.
        runs: int32 [total runs], each path from first to last column: length · 4 + operation (0 pair,
            1 query residue against a gap, 2 target residue against a gap).
        run_offsets: int64 [n + 1]; the runs of alignment k are runs[run_offsets[k] : run_offsets[k + 1]].
    """

    records: np.ndarray
    runs: np.ndarray
    run_offsets: np.ndarray

    @classmethod
    def of_records(cls, records: np.ndarray, runs: np.ndarray) -> "AlignmentPaths":
        """Return alignments whose runs are in the order of the records."""
        return cls(records, runs, np.concatenate([[0], np.cumsum(records[:, 7], dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.records)

    def subset(self, indices: np.ndarray) -> "AlignmentPaths":
        """Return the alignments with these indices, int [m], in this order."""
        records = self.records[indices]
        run_offsets = np.concatenate([[0], np.cumsum(records[:, 7], dtype=np.int64)])
        # the difference between source and destination index of each run, the same for a whole path
        shift = np.repeat(self.run_offsets[:-1][indices] - run_offsets[:-1], records[:, 7])
        return AlignmentPaths(records, self.runs[np.arange(len(shift)) + shift], run_offsets)

    @staticmethod
    def concatenate(parts: "Sequence[AlignmentPaths]") -> "AlignmentPaths":
        """Return the alignments of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        records = np.concatenate([np.empty((0, 8), np.int32), *(part.records for part in parts)])
        runs = np.concatenate([np.empty(0, np.int32), *(part.runs for part in parts)])
        return AlignmentPaths.of_records(records, runs)
