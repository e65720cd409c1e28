"""How a query's profile lies in shared memory, and which lane computes which of its columns."""

from dataclasses import dataclass

import numpy as np

LETTERS = 26
X = 20
RESET = 26
"""Row of the table after the letters: scores that bring every cell to 0, for places past a target's end."""
ROWS = RESET + 1

_WARP = 32
_CHUNK = 16
# lanes that one pass of a 16-byte load serves, 128 bytes from all banks at once
_PASS = 8


@dataclass(frozen=True)
class Arithmetic:
    """What a 16-bit half of a packed pair is.

    Args:
        name: "half" (float16) or "short" (int16).
        dtype: of the table's entries.
        reset: entry that brings any exact score to 0.
        limit: scores below this are exact; one that reaches it is computed again.
        largest_entry: largest magnitude of a profile's scores.
    """

    name: str
    dtype: type
    reset: int
    limit: int
    largest_entry: int


# halves hold every integer up to 2048, so a score below that has been rounded nowhere
HALF = Arithmetic("half", np.float16, reset=-2048, limit=2048, largest_entry=2048)
# one more addition of the largest entry to a score below the limit does not wrap
SHORT = Arithmetic("short", np.int16, reset=-32767, limit=30000, largest_entry=2048)
ARITHMETICS = {arithmetic.name: arithmetic for arithmetic in (HALF, SHORT)}


@dataclass(frozen=True)
class Layout:
    """A tile of query columns spread over a group of lanes.

    Lane l of a group has columns l · columns … (l + 1) · columns − 1. Its pair p holds its column p beside
    its column p + columns / 2, so that a diagonal goes from pair p to pair p + 1 within the same half.

    Args:
        lanes: 4, 8, 16 or 32, lanes that share a target.
        columns: query columns of a lane, a multiple of 8, at most 128.
    """

    lanes: int
    columns: int

    def __post_init__(self) -> None:
        if self.lanes not in (4, 8, 16, 32) or self.columns % 8 or not 8 <= self.columns <= 128:
            raise ValueError(f"no such layout: {self.lanes} lanes × {self.columns} columns")

    @property
    def tile(self) -> int:
        """Query columns of a group."""
        return self.lanes * self.columns

    @property
    def groups(self) -> int:
        """Targets of a warp."""
        return _WARP // self.lanes

    @property
    def slots(self) -> int:
        """Places of lanes in a row of the table: two copies for groups of 4, so that banks never conflict."""
        return max(self.lanes, _PASS)

    @property
    def row_bytes(self) -> int:
        """Bytes from one row of the table to the next."""
        return self.chunk_bytes * self.columns // 8

    @property
    def chunk_bytes(self) -> int:
        """Bytes from 4 pairs of a lane to its next 4."""
        return self.slots * _CHUNK

    @property
    def table_bytes(self) -> int:
        """Shared memory that the table takes."""
        return ROWS * self.row_bytes

    def table(self, profile: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
        """A tile of a profile as the kernel reads it.

        Args:
            profile: int [≤ tile, ≥ 26], half-bits.
            arithmetic: of the kernel; no entry may be larger than it allows.

        Returns:
            int32 [table_bytes / 4]: [27 rows, columns / 8 chunks, slots, 4 pairs].
        """
        rows = np.full((ROWS, self.tile), arithmetic.reset, arithmetic.dtype)
        rows[:LETTERS, : len(profile)] = profile[:, :LETTERS].T
        # [rows, lanes, halves of a lane, chunks, pairs of a chunk]
        cells = rows.reshape(ROWS, self.lanes, 2, self.columns // 8, 4)
        cells = cells.transpose(0, 3, 1, 4, 2)  # [rows, chunks, lanes, pairs, halves]
        cells = np.tile(cells, (1, 1, self.slots // self.lanes, 1, 1))
        return np.ascontiguousarray(cells).view(np.int32).reshape(-1)
