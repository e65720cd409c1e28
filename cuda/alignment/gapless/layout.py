"""How a query's profile lies in shared memory, and which lane computes which of its columns."""

from dataclasses import dataclass

import numpy as np

from cuda.alignment.pieces import Piece, pieces

LETTERS = 26
X = 20
RESET = 26
"""Row of the table after the letters, for places past a target's end: no score that counts."""
ROWS = RESET + 1

_WARP = 32
_WORD = 4
# words that one pass of a load serves: all banks at once
_BANKS = 32


@dataclass(frozen=True)
class Arithmetic:
    """What a 16-bit half of a packed pair of cells is, and an entry of the table.

    Args:
        name: "half" (float16), "short" (int16), or "byte" (float16, from entries of one byte).
        dtype: of the table's entries.
        zero: the pair of cells whose scores are 0.
        reset: entry that brings any exact score to 0.
        limit: scores below this are exact ("byte": no less than exact); one that reaches it is not.
        largest_entry: largest magnitude of a profile's scores.
    """

    name: str
    dtype: type
    zero: int
    reset: int
    limit: int
    largest_entry: int

    @property
    def entry_bytes(self) -> int:
        """Of the table."""
        return int(np.dtype(self.dtype).itemsize)


# halves hold every integer up to 2048, so a score below that has been rounded nowhere
HALF = Arithmetic("half", np.float16, zero=0, reset=-2048, limit=2048, largest_entry=2048)
# one more addition of the largest entry to a score below the limit does not wrap
SHORT = Arithmetic("short", np.int16, zero=0, reset=-32767, limit=30000, largest_entry=2048)
# see byte_table.py: there nothing needs to be reset
BYTE = Arithmetic("byte", np.uint8, zero=0x3C003C00, reset=0, limit=1024, largest_entry=127)
ARITHMETICS = {arithmetic.name: arithmetic for arithmetic in (HALF, SHORT, BYTE)}


@dataclass(frozen=True)
class Layout:
    """A tile of query columns spread over a group of lanes.

    Lane l of a group has columns l · columns … (l + 1) · columns − 1. Its pair p holds its column p beside
    its column p + columns / 2, so that a diagonal goes from pair p to pair p + 1 within the same half.

    A row of the table is a sequence of pieces (cuda/alignment/pieces.py): the first words of all lanes, the
    next words of all lanes, and so on. A piece has places for at least so many lanes that one pass of a load
    reads all banks; with fewer lanes in a group the places repeat, so that banks never conflict.

    Args:
        lanes: 4, 8, 16 or 32, lanes that share a target.
        columns: query columns of a lane, a multiple of 4 · entry_bytes, at most 128.
        entry_bytes: of a column in the table: 2, or 1 with arithmetic "byte".
    """

    lanes: int
    columns: int
    entry_bytes: int = 2

    def __post_init__(self) -> None:
        step = 4 * self.entry_bytes
        if self.lanes not in (4, 8, 16, 32) or self.columns % step or not step <= self.columns <= 128:
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
    def pairs(self) -> int:
        """Pairs of cells of a lane."""
        return self.columns // 2

    @property
    def words(self) -> int:
        """Words of the table that a lane reads per row."""
        return self.columns * self.entry_bytes // _WORD

    def slots(self, words: int) -> int:
        """Places of lanes in a piece of so many words."""
        return max(self.lanes, _BANKS // words)

    def piece_bytes(self, words: int) -> int:
        """Bytes from a piece of so many words to the next piece."""
        return self.slots(words) * words * _WORD

    @property
    def first_pieces(self) -> list[tuple[Piece, int]]:
        """The first piece of each width, and the byte of a row at which it starts."""
        starts, byte = [], 0
        for piece in pieces(self.words):
            if piece.turn == 0:
                starts.append((piece, byte))
            byte += self.piece_bytes(piece.words)
        return starts

    @property
    def row_bytes(self) -> int:
        """Bytes from one row of the table to the next."""
        return sum(self.piece_bytes(piece.words) for piece in pieces(self.words))

    @property
    def table_bytes(self) -> int:
        """Shared memory that the table takes."""
        return ROWS * self.row_bytes

    def cells(self, rows: np.ndarray) -> np.ndarray:
        """Entries in the order of pairs: [27, tile] → [27, lanes, pairs, 2 halves]."""
        return rows.reshape(ROWS, self.lanes, 2, self.pairs).transpose(0, 1, 3, 2)

    def spread(self, words: np.ndarray) -> np.ndarray:
        """The table as shared memory holds it.

        Args:
            words: int32 [27, lanes, words], of each lane in the order in which it reads them.

        Returns:
            int32 [table_bytes / 4].
        """
        parts = []
        for piece in pieces(self.words):
            part = words[:, :, piece.first : piece.first + piece.words]
            part = np.tile(part, (1, self.slots(piece.words) // self.lanes, 1))
            parts.append(part.reshape(ROWS, -1))
        return np.concatenate(parts, axis=1).reshape(-1)

    def table(self, profile: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
        """A tile of a profile as the kernels of 16-bit entries read it.

        Args:
            profile: int [≤ tile, ≥ 26], half-bits.
            arithmetic: "half" or "short"; no entry may be larger than it allows.

        Returns:
            int32 [table_bytes / 4].
        """
        rows = np.full((ROWS, self.tile), arithmetic.reset, arithmetic.dtype)
        rows[:LETTERS, : len(profile)] = profile[:, :LETTERS].T
        return self.spread(np.ascontiguousarray(self.cells(rows)).view(np.int32)[..., 0])
