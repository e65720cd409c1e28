"""The profile table in shared memory: number formats, and the assignment of query columns to lanes.

Exact scores are computed from 16-bit entries, upper bounds of them from one-byte entries, as
follows.

A cell M is stored as the half-precision number (half) N = 1 − M / 2048. Adding score s to M subtracts s /
2048 from N, and the add instruction's clamp at N ≤ 1 implements M ≥ 0. In [1/2, 1) the last bit of a half is
1/2048, so sums round to whole scores and an addend may be off by up to half a score without effect. Its low
byte can therefore be arbitrary; only the high byte (sign, exponent and two bits of the mantissa) matters. The
four bytes b3 b2 b1 b0 of a word thus hold two pairs of addends, as the halves

    b3 b2 and b1 b0    of the word itself
    b2 b1 and b0 00    of the word shifted left by one byte

Once the low byte is known, the high byte is the one that adds least without the rounded sum falling below the
exact one. Scores from −4 to 7 are exact; larger ones are too high by less than a quarter.

Running maxima are taken over every second pair only, which halves their cost. The next cell on the diagonal
of a skipped cell is counted, unless the skipped cell is in the last row, where all cells are counted. From a
skipped cell to the next one, a score falls by at most the magnitude of the profile's most negative score, the
slack, which is therefore added to the maximum. To keep the slack small, scores below −MAX_PENALTY are raised
to −MAX_PENALTY, which only makes bounds larger. Columns past the query and rows past the target score 0, so
nothing is lost there.
"""

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
        dtype: dtype of the table's entries.
        zero: word that represents two cells with score 0.
        reset: entry that brings any exact score to 0.
        limit: scores below this are exact ("byte": at least the exact score); higher ones may be wrong.
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
# columns past the query and rows past the target score 0, so nothing needs to be reset
BYTE = Arithmetic("byte", np.uint8, zero=0x3C003C00, reset=0, limit=1024, largest_entry=127)

MAX_SCORE = BYTE.largest_entry
MAX_PENALTY = 4
"""Scores are raised to at least −MAX_PENALTY. A larger value would loosen all bounds and let more targets
pass."""
_SCALE = 2048


@dataclass(frozen=True)
class LaneLayout:
    """A tile of query columns spread over a group of lanes.

    Lane l of a group holds columns l · columns … (l + 1) · columns − 1. Its pair p holds its columns p and
    p + columns / 2, so a diagonal runs from pair p to pair p + 1 within the same half.

    A table row consists of segments, one per vector load: the first words of all lanes, then the next words
    of all lanes, and so on. A segment has enough lane slots for one pass of a load to read all banks; with
    fewer lanes per group the slots repeat the same words, which avoids bank conflicts.

    Args:
        lanes: lanes per target, 1, 2, 4, 8, 16 or 32.
        columns: query columns per lane, a multiple of 4 · entry_bytes, at most 128.
        entry_bytes: bytes of a table entry: 2, or 1 with arithmetic "byte".

    Raises:
        ValueError: lanes or columns are not supported.
    """

    lanes: int
    columns: int
    entry_bytes: int = 2

    def __post_init__(self) -> None:
        step = 4 * self.entry_bytes
        if self.lanes not in (1, 2, 4, 8, 16, 32) or self.columns % step or not step <= self.columns <= 128:
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


@cache
def entry_bytes() -> np.ndarray:
    """Compute the table entry for each score and low byte.

    Returns:
        uint8 [MAX_PENALTY + 1 + MAX_SCORE, 256]: row s + MAX_PENALTY for score s; column = low byte.
    """
    # high bytes from 0x7C on, sign aside, are infinities or NaN
    high = np.array([b for b in range(256) if b & 0x7F < 0x7C], np.uint8)
    bits = high[:, None].astype(np.uint16) << 8 | np.arange(256, dtype=np.uint16)
    added = -bits.view(np.float16).astype(np.float64) * _SCALE  # [high bytes, low bytes], in scores
    # a sum that is short by exactly half a score may round either way
    limits = np.arange(-MAX_PENALTY, MAX_SCORE + 1) - 0.5
    order = added.argsort(axis=0, kind="stable")
    entries = np.empty((len(limits), 256), np.uint8)
    for low in range(256):
        least = np.searchsorted(added[order[:, low], low], limits, side="right")
        entries[:, low] = high[order[least, low]]
    entries.setflags(write=False)
    return entries
