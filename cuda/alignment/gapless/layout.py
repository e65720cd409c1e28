"""The profile table in shared memory, and the assignment of query columns to lanes."""

from dataclasses import dataclass
from functools import cache

import numpy as np

LETTERS = 26
X = 20
"""Letter code of an unknown residue; masked residues are scored as X."""
RESET = 26
"""Table row after the letters, read past a target's end: its entries bring every score to zero."""
ROWS = RESET + 1

_WARP = 32
_WORD = 4
# words that a shared-memory load reads per pass, one from each bank
_BANKS = 32


@dataclass(frozen=True)
class VectorLoad:
    """One vector load of a lane's words of a table row.

    Args:
        first: index of its first word.
        words: width, 4, 2 or 1 words.
        width_index: index of its width among the widths of the row, widest first.
        repeat: index among the loads of the same width.
    """

    first: int
    words: int
    width_index: int
    repeat: int


@cache
def vector_loads(count: int) -> tuple[VectorLoad, ...]:
    """Split `count` words into loads of four words, then two, then one."""
    loads: list[VectorLoad] = []
    width_index, first = 0, 0
    for words, repeats in ((4, count // 4), (2, count % 4 // 2), (1, count % 2)):
        for repeat in range(repeats):
            loads.append(VectorLoad(first, words, width_index, repeat))
            first += words
        width_index += repeats > 0
    return tuple(loads)


@dataclass(frozen=True)
class Arithmetic:
    """The 16-bit number format of a cell, and the entries of the profile table.

    Args:
        name: "half" (float16), "short" (int16), or "byte" (float16 cells, one-byte entries).
        dtype: of the table's entries.
        zero: the word of two cells with score 0.
        reset: entry that brings any exact score to 0.
        limit: scores below this are exact ("byte": not below the exact score); others may not be.
        largest_entry: largest magnitude of a profile score.
    """

    name: str
    dtype: type
    zero: int
    reset: int
    limit: int
    largest_entry: int

    @property
    def entry_bytes(self) -> int:
        """Bytes of a table entry."""
        return int(np.dtype(self.dtype).itemsize)


# halves represent every integer up to 2048 exactly, so scores below that are not rounded
HALF = Arithmetic("half", np.float16, zero=0, reset=-2048, limit=2048, largest_entry=2048)
# adding the largest entry to a score below the limit does not overflow
SHORT = Arithmetic("short", np.int16, zero=0, reset=-32767, limit=30000, largest_entry=2048)
# columns past the query and rows past the target score 0 (byte_table.py), so nothing needs to be reset
BYTE = Arithmetic("byte", np.uint8, zero=0x3C003C00, reset=0, limit=1024, largest_entry=127)
ARITHMETICS = {arithmetic.name: arithmetic for arithmetic in (HALF, SHORT, BYTE)}


@dataclass(frozen=True)
class Layout:
    """A tile of query columns spread over a group of lanes.

    Lane l of a group holds columns l · columns … (l + 1) · columns − 1. Its pair p holds its columns p and
    p + columns / 2, so a diagonal runs from pair p to pair p + 1 within the same half.

    A table row consists of segments, one per vector load: the first words of all lanes, then the next words
    of all lanes, and so on. A segment has enough lane slots for one pass of a load to read all banks; with
    fewer lanes per group the slots repeat the same words, which avoids bank conflicts.

    Args:
        lanes: lanes per target, 4, 8, 16 or 32.
        columns: query columns per lane, a multiple of 4 · entry_bytes, at most 128.
        entry_bytes: bytes of a table entry: 2, or 1 with arithmetic "byte".

    Raises:
        ValueError: if lanes or columns are not supported.
    """

    lanes: int
    columns: int
    entry_bytes: int = 2

    def __post_init__(self) -> None:
        step = 4 * self.entry_bytes
        if self.lanes not in (4, 8, 16, 32) or self.columns % step or not step <= self.columns <= 128:
            raise ValueError(f"unsupported layout: {self.lanes} lanes × {self.columns} columns")

    @property
    def tile(self) -> int:
        """Query columns per group."""
        return self.lanes * self.columns

    @property
    def groups(self) -> int:
        """Groups, and so targets, per warp."""
        return _WARP // self.lanes

    @property
    def pairs(self) -> int:
        """Pairs of cells per lane."""
        return self.columns // 2

    @property
    def words(self) -> int:
        """Words of the table that a lane reads per row."""
        return self.columns * self.entry_bytes // _WORD

    def slots(self, words: int) -> int:
        """Return the number of lane slots in a segment for loads of this width."""
        return max(self.lanes, _BANKS // words)

    def segment_bytes(self, words: int) -> int:
        """Return the size of a segment for loads of this width."""
        return self.slots(words) * words * _WORD

    @property
    def first_loads(self) -> list[tuple[VectorLoad, int]]:
        """The first load of each width, and the byte of a row at which its segment starts."""
        starts, byte = [], 0
        for load in vector_loads(self.words):
            if load.repeat == 0:
                starts.append((load, byte))
            byte += self.segment_bytes(load.words)
        return starts

    @property
    def row_bytes(self) -> int:
        """Bytes from one row of the table to the next."""
        return sum(self.segment_bytes(load.words) for load in vector_loads(self.words))

    @property
    def table_bytes(self) -> int:
        """Size of the table in shared memory."""
        return ROWS * self.row_bytes

    def to_pairs(self, rows: np.ndarray) -> np.ndarray:
        """Arrange entries as pairs: [ROWS, tile] → [ROWS, lanes, pairs, 2 halves]."""
        return rows.reshape(ROWS, self.lanes, 2, self.pairs).transpose(0, 1, 3, 2)

    def to_shared_memory(self, words: np.ndarray) -> np.ndarray:
        """Arrange the words of all lanes as they are stored in shared memory.

        Args:
            words: int32 [ROWS, lanes, words], each lane's words in the order in which it reads them.

        Returns:
            int32 [table_bytes / 4].
        """
        segments = []
        for load in vector_loads(self.words):
            segment = words[:, :, load.first : load.first + load.words]
            segment = np.tile(segment, (1, self.slots(load.words) // self.lanes, 1))
            segments.append(segment.reshape(ROWS, -1))
        return np.concatenate(segments, axis=1).reshape(-1)

    def table(self, profile: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
        """Build the shared-memory table of a profile tile, with 16-bit entries.

        Args:
            profile: int [≤ tile, ≥ 26], half-bits, magnitudes up to `arithmetic.largest_entry`.
            arithmetic: "half" or "short".

        Returns:
            int32 [table_bytes / 4].
        """
        rows = np.full((ROWS, self.tile), arithmetic.reset, arithmetic.dtype)
        rows[:LETTERS, : len(profile)] = profile[:, :LETTERS].T
        return self.to_shared_memory(np.ascontiguousarray(self.to_pairs(rows)).view(np.int32)[..., 0])
