"""How a lane reads its words of a row: four at a time while there are four, then two, then one."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Piece:
    """Words that one load takes.

    Args:
        first: the first of them.
        words: 4, 2 or 1.
        place: how many other widths come before this one.
        turn: how many pieces of the same width come before this one.
    """

    first: int
    words: int
    place: int
    turn: int


@cache
def pieces(count: int) -> tuple[Piece, ...]:
    """The loads of so many words."""
    found: list[Piece] = []
    place, first = 0, 0
    for words, times in ((4, count // 4), (2, count % 4 // 2), (1, count % 2)):
        for turn in range(times):
            found.append(Piece(first, words, place, turn))
            first += words
        place += times > 0
    return tuple(found)
