"""The profile table with one-byte entries, from which upper bounds of gapless scores are computed.

A cell M is stored as the half-precision number N = 1 − M / 2048. Adding score s to M subtracts s / 2048 from
N, and the add instruction's clamp at N ≤ 1 implements M ≥ 0. In [1/2, 1) the last bit of a half is 1/2048, so
sums round to whole scores and an addend may be off by up to half a score without effect. Its low byte can
therefore be arbitrary; only the high byte (sign, exponent and two bits of the mantissa) matters. The four
bytes b3 b2 b1 b0 of a word thus hold two pairs of addends, as the halves

    b3 b2 and b1 b0    of the word itself
    b2 b1 and b0 00    of the word shifted left by one byte

Once the low byte is known, the high byte is the one that adds least without the rounded sum falling below the
exact one. Scores from −4 to 7 are exact; larger ones are too high by less than a quarter.

Running maxima are taken over every second pair only, which halves their cost. A skipped cell continues along
its diagonal to a cell that is counted, or is in the last row, where all cells count. This single step loses
at most the magnitude of the profile's most negative score, the slack, which is added to the maximum. To keep
the slack small, scores below −MAX_PENALTY are raised to −MAX_PENALTY, which only makes bounds larger. Columns
past the query and rows past the target score 0, so nothing is lost there.
"""

from functools import cache

import numpy as np

from cuda.alignment.gapless.layout import BYTE, LETTERS, ROWS, Layout

MAX_SCORE = BYTE.largest_entry
MAX_PENALTY = 4
"""Scores are raised to at least −MAX_PENALTY. A larger value would loosen all bounds and let more targets
pass."""
_SCALE = 2048


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
    entries = np.empty((MAX_PENALTY + 1 + MAX_SCORE, 256), np.uint8)
    for score in range(-MAX_PENALTY, MAX_SCORE + 1):
        # a sum that is short by exactly half a score may round either way
        enough = np.where(added > score - 0.5, added, np.inf)
        entries[score + MAX_PENALTY] = high[enough.argmin(axis=0)]
    entries.setflags(write=False)
    return entries


def slack(profile: np.ndarray) -> int:
    """Return the amount by which a maximum over every second pair may be too low."""
    return min(max(-int(profile[:, :LETTERS].min()), 0), MAX_PENALTY)


def byte_table(layout: Layout, profile: np.ndarray) -> np.ndarray:
    """Build the shared-memory table of a profile tile, with one-byte entries.

    Args:
        layout: with `entry_bytes` 1.
        profile: int [≤ tile, ≥ 26], half-bits, at most MAX_SCORE.

    Returns:
        int32 [table_bytes / 4].
    """
    lookup = entry_bytes()
    scores = np.zeros((ROWS, layout.tile), np.int16)
    scores[:LETTERS, : len(profile)] = np.maximum(profile[:, :LETTERS].T, -MAX_PENALTY)
    scores += MAX_PENALTY
    # [rows, lanes, words, 2 pairs, 2 halves]
    cells = layout.to_pairs(scores).reshape(ROWS, layout.lanes, layout.words, 2, 2)
    words = np.empty((*cells.shape[:3], 4), np.uint8)
    low: np.ndarray | int = 0
    for byte, (pair, half) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        low = words[..., byte] = lookup[cells[..., pair, half], low]
    return layout.to_shared_memory(words.view(np.int32)[..., 0])
