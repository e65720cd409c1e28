"""Conversion of aligned rows to the columns of their query, shared by the alignment readers.

The readers fill in an alignment block by block, so that their temporary arrays stay small compared with the
result.
"""

import numpy as np

GAP = ord("-")
# approximate size of a block, small enough for the processor's cache
BLOCK_BYTES = 1 << 17


class QueryColumns:
    """An alignment reduced to the columns in which the query has a residue.

    Args:
        rows: number of rows.
        query: uint8 [width], the first row in all columns; columns where it has a gap are dropped.

    Attributes:
        letters: uint8 [rows, columns]; undefined until `add_rows` has filled the row.
        deletions: residues dropped before each column, unsigned integers [rows, columns], no wider than the
            largest count needs.
    """

    def __init__(self, rows: int, query: np.ndarray) -> None:
        self._width = len(query)
        self._kept = np.flatnonzero(query != GAP)
        self._dropped = query == GAP
        self.letters = np.empty((rows, len(self._kept)), np.uint8)
        self.deletions = np.zeros((rows, len(self._kept)), np.uint8)

    @property
    def columns(self) -> int:
        """The number of residues of the query."""
        return len(self._kept)

    def add_rows(self, first: int, rows: np.ndarray, following: np.ndarray, counts: np.ndarray) -> None:
        """Fill in a block of rows.

        Args:
            first: index of the block's first row.
            rows: uint8 [block, width], upper-case letters and gaps.
            following: int [insertions], ascending: flat index into `rows` of the element after each
                insertion.
            counts: int [insertions], residues of each insertion.
        """
        if self.columns == 0:
            return
        block = slice(first, first + len(rows))
        if self.columns == self._width:
            self.letters[block] = rows
            self._widen(counts)
            self.deletions[block].reshape(-1)[following] = counts
            return
        self.letters[block] = rows[:, self._kept]
        dropped = ((rows != GAP) & self._dropped).astype(np.int64)
        dropped.reshape(-1)[following] += counts
        # sum over each kept column and the dropped columns before it; those after the last are not counted
        starts = np.append(0, self._kept[:-1] + 1)
        summed = np.add.reduceat(dropped[:, : self._kept[-1] + 1], starts, axis=1)
        self._widen(summed)
        self.deletions[block] = summed

    def _widen(self, counts: np.ndarray) -> None:
        """Give `deletions` a wider type if `counts` need one."""
        needed = np.min_scalar_type(int(counts.max(initial=0)))
        if needed.itemsize > self.deletions.itemsize:
            self.deletions = self.deletions.astype(needed)


def ragged_reason(row: int, name: str, length: int, expected: int) -> str:
    """Return the error text for a row (0-based) whose length differs from the query's."""
    return f"row {row + 1} ({name}) has {length} columns, the query has {expected}"
