"""A profile in one byte per score: what the kernel of bounds adds, and why that never gives too little.

A cell M is kept as the half N = 1 − M / 2048, so that M + s is N − s / 2048, clamped at N ≤ 1, which is
M ≥ 0, by the instruction that adds. In [1/2, 1) a half's last bit is 1/2048: the sum rounds itself to a whole
score, and what is added may be off by up to half a score without a trace. So the low byte of an addend may be
anything, and only its high byte, sign, exponent and two bits of the mantissa, has to be chosen. Four bytes
b3 b2 b1 b0 of a word therefore hold two packed pairs of addends, the halves

    b3 b2 and b1 b0    the word as it is
    b2 b1 and b0 00    the word shifted by a byte

Each byte is chosen with its low byte known, as the one that adds least while the rounded sum is no less than
the exact one. Scores from −4 to 7 come out exact, larger ones less than a quarter too high.

Running maxima take half as long over every second pair. A cell that is left out goes on, along its diagonal,
to one that is not, or is among the last row's, which all count in the end; on the way it loses at most the
steepest score of the profile. So that is added to the maximum, and kept small: scores below −STEEPEST become
that, which only makes bounds larger. Columns past the query and rows past the target score 0, so that nothing
is lost there.
"""

from functools import cache

import numpy as np

from cuda.alignment.gapless.layout import BYTE, LETTERS, ROWS, Layout

LARGEST = BYTE.largest_entry
STEEPEST = 4
"""As low as scores go: a lower limit would let more targets pass for which a bound is all there is."""
_SCALE = 2048


@cache
def choices() -> np.ndarray:
    """The byte for each score and low byte.

    Returns:
        uint8 [STEEPEST + 1 + LARGEST, 256]: row s + STEEPEST for score s, column = the low byte of the half.
    """
    # a high byte of 0x7C or more, sign aside, is no number
    high = np.array([b for b in range(256) if b & 0x7F < 0x7C], np.uint8)
    bits = high[:, None].astype(np.uint16) << 8 | np.arange(256, dtype=np.uint16)
    added = -bits.view(np.float16).astype(np.float64) * _SCALE  # [high bytes, low bytes], in scores
    found = np.empty((STEEPEST + 1 + LARGEST, 256), np.uint8)
    for score in range(-STEEPEST, LARGEST + 1):
        # a sum half a score short may round either way
        enough = np.where(added > score - 0.5, added, np.inf)
        found[score + STEEPEST] = high[enough.argmin(axis=0)]
    found.setflags(write=False)
    return found


def slack(profile: np.ndarray) -> int:
    """What a maximum over every second pair may be short by."""
    return min(max(-int(profile[:, :LETTERS].min()), 0), STEEPEST)


def byte_table(layout: Layout, profile: np.ndarray) -> np.ndarray:
    """A tile of a profile as the kernel of bounds reads it.

    Args:
        layout: with one byte per entry.
        profile: int [≤ tile, ≥ 26], half-bits, no more than LARGEST.

    Returns:
        int32 [table_bytes / 4].
    """
    lookup = choices()
    scores = np.zeros((ROWS, layout.tile), np.int16)
    scores[:LETTERS, : len(profile)] = np.maximum(profile[:, :LETTERS].T, -STEEPEST)
    scores += STEEPEST
    # [rows, lanes, words, 2 pairs, 2 halves]
    cells = layout.cells(scores).reshape(ROWS, layout.lanes, layout.words, 2, 2)
    words = np.empty((*cells.shape[:3], 4), np.uint8)
    low: np.ndarray | int = 0
    for byte, (pair, half) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        low = words[..., byte] = lookup[cells[..., pair, half], low]
    return layout.spread(words.view(np.int32)[..., 0])
