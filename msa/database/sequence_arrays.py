"""Residues, offsets and lengths of a set of sequences, as three arrays."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class SequenceArrays:
    """A set of sequences stored as contiguous, read-only arrays.

    The arrays may be memory-mapped. They are stored as plain `np.ndarray` views, so that numba compiles each
    kernel once for all sources.

    Args:
        residues: uint8 [bytes], letter codes; bit 5 is the soft mask.
        offsets: int64 [n], index in `residues` of the first residue of each sequence.
        lengths: int32 [n], number of residues of each sequence.
    """

    residues: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        dtypes = {"residues": np.uint8, "offsets": np.int64, "lengths": np.int32}
        for field in fields(self):
            view = np.ascontiguousarray(getattr(self, field.name), dtypes[field.name]).view()
            view.flags.writeable = False
            object.__setattr__(self, field.name, view)

    def __len__(self) -> int:
        return len(self.lengths)

    def codes(self, index: int) -> np.ndarray:
        """Return the residue bytes of one sequence, uint8 [length]."""
        start = int(self.offsets[index])
        return self.residues[start : start + int(self.lengths[index])]

    def byte_range(self, first: int, end: int) -> tuple[int, int]:
        """Return the start and end byte of sequences `first` to `end` (exclusive).

        Indices past the last sequence map to the end of `residues`.
        """
        start, stop = (int(self.offsets[k]) if k < len(self) else len(self.residues) for k in (first, end))
        return start, stop
