"""The columns in which the query has a residue: other rows' letters there, and what lies between them.

An alignment is filled in block by block of rows, so that what is made on the way stays small beside
the result.
"""

import numpy as np

GAP = ord("-")
# work on blocks of about this many bytes: they stay in the processor's cache, and the peak near the result
BLOCK = 1 << 17


class QueryColumns:
    """Rows of an alignment's own columns in, rows of its query's columns out.

    Args:
        rows: of the alignment.
        query: uint8 [width], the first row in all columns; those in which it has a gap are dropped.

    Attributes:
        letters: uint8 [rows, columns], undefined where nothing was put.
        deletions: the narrowest unsigned integers that hold what was put, [rows, columns].
    """

    def __init__(self, rows: int, query: np.ndarray) -> None:
        self._width = len(query)
        self._kept = np.flatnonzero(query != GAP)
        self._dropped = query == GAP
        self.letters = np.empty((rows, len(self._kept)), np.uint8)
        self.deletions = np.zeros((rows, len(self._kept)), np.uint8)

    @property
    def columns(self) -> int:
        """Residues of the query."""
        return len(self._kept)

    def put(self, first: int, wide: np.ndarray, places: np.ndarray, counts: np.ndarray) -> None:
        """Fill in the rows from `first` on.

        Args:
            first: index of the block's first row.
            wide: uint8 [block, width], upper-case letters and gaps.
            places: int [insertions], ascending; which element of `wide` follows an insertion.
            counts: int [insertions], how many residues were inserted there.
        """
        if self.columns == 0:
            return
        rows = slice(first, first + len(wide))
        if self.columns == self._width:
            self.letters[rows] = wide
            self._widen(counts)
            self.deletions[rows].reshape(-1)[places] = counts
            return
        self.letters[rows] = wide[:, self._kept]
        between = ((wide != GAP) & self._dropped).astype(np.int64)
        between.reshape(-1)[places] += counts
        # sum over each kept column and the dropped ones before it; those after the last are counted nowhere
        starts = np.append(0, self._kept[:-1] + 1)
        summed = np.add.reduceat(between[:, : self._kept[-1] + 1], starts, axis=1)
        self._widen(summed)
        self.deletions[rows] = summed

    def _widen(self, counts: np.ndarray) -> None:
        needed = np.min_scalar_type(int(counts.max(initial=0)))
        if needed.itemsize > self.deletions.itemsize:
            self.deletions = self.deletions.astype(needed)
