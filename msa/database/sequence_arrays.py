"""Residues, offsets and lengths of a set of sequences, as three arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

SAMPLE_SIZE = 500
"""Number of sequences in a sample by length."""
_MIN_QUANTILE, _MAX_QUANTILE = 0.02, 0.98
"""Samples are taken between these quantiles of length."""


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

    @classmethod
    def contiguous(cls, residues: np.ndarray, lengths: np.ndarray) -> "SequenceArrays":
        """Return sequences of which each starts where the previous one ends, without padding."""
        return cls(residues, np.cumsum(lengths, dtype=np.int64) - lengths, lengths)

    @classmethod
    def concatenate(cls, codes: Sequence[np.ndarray]) -> "SequenceArrays":
        """Concatenate single sequences, uint8 [length] each, without padding."""
        residues = np.concatenate([np.empty(0, np.uint8), *codes])
        return cls.contiguous(residues, np.array([len(each) for each in codes], np.int32))

    def __len__(self) -> int:
        return len(self.lengths)

    def codes(self, index: int) -> np.ndarray:
        """Return the residue bytes of one sequence, uint8 [length]."""
        start = int(self.offsets[index])
        return self.residues[start : start + int(self.lengths[index])]

    def gather(self, indices: np.ndarray) -> "SequenceArrays":
        """Copy some sequences of a database; each starts at a multiple of four bytes, as in the database.

        Args:
            indices: int64 [n].

        Returns:
            The sequences, in this order; four zero bytes follow the last one.
        """
        word = 4
        lengths = self.lengths[indices]
        words = -(-lengths.astype(np.int64) // word)
        starts = np.cumsum(words) - words
        # the difference between source and destination index of each word, the same for all words of a
        # sequence
        shift = np.repeat(self.offsets[indices] // word - starts, words)
        copied = self.residues.view(np.uint32)[np.arange(len(shift)) + shift]
        residues = np.append(copied, np.uint32(0)).view(np.uint8)
        return SequenceArrays(residues, starts * word, lengths)

    def sample_by_length(self, count: int) -> "SequenceArrays":
        """Return SAMPLE_SIZE sequences, evenly spread over the first `count`, which are sorted by length."""
        indices = np.linspace(_MIN_QUANTILE, _MAX_QUANTILE, SAMPLE_SIZE) * (count - 1)
        return SequenceArrays.concatenate([self.codes(int(index)) for index in indices])

    def byte_range(self, first: int, end: int) -> tuple[int, int]:
        """Return the start and end byte of sequences `first` to `end` (exclusive).

        Indices past the last sequence map to the end of `residues`.
        """
        start, stop = (int(self.offsets[k]) if k < len(self) else len(self.residues) for k in (first, end))
        return start, stop
