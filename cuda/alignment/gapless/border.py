"""The column of cells between one tile of a long query and the next, in GPU memory.

It holds the last column of the tile before, a half per residue of the targets, and is written over by the
next tile's. A launch takes as many targets as the memory holds the column for.
"""

from collections.abc import Iterator
from typing import Any

from numba import cuda, types

from cuda.alignment.gapless.device import StreamState
from cuda.alignment.gapless.generator import UNBOUNDED

SPAN = 2**27
"""Residues whose targets one launch takes at most."""
OVERHANG = 2**20
"""Residues by which the last of them may end later; a target that is longer gets no bound."""
_LEAST_SPAN = 2**22
_END = 2**62


def border_words(state: StreamState, residues: int) -> Any:
    """Device int32 [≥ 2], for two residues each: all, or SPAN and OVERHANG, or what memory there is.

    Args:
        state: of the stream that uses them.
        residues: bytes of all targets.

    Raises:
        Exception: numba's, not even a small part of that is free.
    """
    span = SPAN
    while True:
        try:
            return state.counters("border", max(min(residues, span + OVERHANG) // 2, 2))
        except Exception as error:  # numba's and cuda-core's errors share no class
            if "OUT_OF_MEMORY" not in str(error).upper().replace(" ", "_") or span <= _LEAST_SPAN:
                raise
            span //= 2


def launches_over(residues: int, words: int) -> Iterator[tuple[int, int]]:
    """From which byte to which the targets of each launch start, with so many words of border."""
    span = 2 * words - OVERHANG
    if residues <= 2 * words:
        yield 0, _END
        return
    for first in range(0, residues, span):
        yield first, first + span


FILL_SIGNATURE = types.void(types.int16[::1])
FILL_THREADS = 128


def fill_unbounded(bounds: Any) -> None:
    """Bound nothing: int16 [n], written."""
    for target in range(cuda.grid(1), bounds.size, cuda.gridsize(1)):
        bounds[target] = UNBOUNDED
