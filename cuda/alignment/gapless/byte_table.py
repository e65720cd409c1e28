"""The profile table with one-byte entries, from which upper bounds of gapless scores are computed.

A cell M is stored as the half-precision number N = 1 − M / 2048. Adding score s to M subtracts s / 2048 from
N, and the add instruction's clamp at N ≤ 1 implements M ≥ 0. In [1/2, 1) the last bit of a half is 1/2048, so
sums round to whole scores and an addend may be off by up to half a score without effect. Its low byte can
therefore be arbitrary; only the high byte (sign, exponent and two bits of the mantissa) must be chosen. The
four bytes b3 b2 b1 b0 of a word thus hold two pairs of addends, as the halves

    b3 b2 and b1 b0    of the word itself
    b2 b1 and b0 00    of the word shifted left by one byte

Each byte is chosen once its low byte is known: the one that adds least while the rounded sum is not below the
exact one. Scores from −4 to 7 are exact; larger ones are less than a quarter too high.

Running maxima are taken over every second pair only, which halves their cost. A skipped cell continues along
its diagonal to a cell that is counted, or is in the last row, where all cells count. On the way it loses at
most the most negative score of the profile, so that much (the slack) is added to the maximum. To keep the
slack small, scores below −STEEPEST are raised to −STEEPEST, which only makes bounds larger. Columns past the
query and rows past the target score 0, so nothing is lost there.
"""

from functools import cache

import numpy as np

from cuda.alignment.gapless.layout import BYTE, LETTERS, ROWS, Layout

LARGEST = BYTE.largest_entry
STEEPEST = 4
"""Scores are raised to at least −STEEPEST. A larger value would loosen all bounds and let more targets
pass."""
_SCALE = 2048


@cache
def entry_bytes() -> np.ndarray:
    """Compute the table entry for each score and low byte.

    Returns:
        uint8 [STEEPEST + 1 + LARGEST, 256]: row s + STEEPEST for score s; column = low byte of the half.
    """
    # high bytes from 0x7C on, sign aside, are infinities or NaN
    high = np.array([b for b in range(256) if b & 0x7F < 0x7C], np.uint8)
    bits = high[:, None].astype(np.uint16) << 8 | np.arange(256, dtype=np.uint16)
    added = -bits.view(np.float16).astype(np.float64) * _SCALE  # [high bytes, low bytes], in scores
    entries = np.empty((STEEPEST + 1 + LARGEST, 256), np.uint8)
    for score in range(-STEEPEST, LARGEST + 1):
        # a sum that is short by exactly half a score may round either way
        enough = np.where(added > score - 0.5, added, np.inf)
        entries[score + STEEPEST] = high[enough.argmin(axis=0)]
    entries.setflags(write=False)
    return entries


def slack(profile: np.ndarray) -> int:
    """Return by how much a maximum over every second pair may be too low."""
    return min(max(-int(profile[:, :LETTERS].min()), 0), STEEPEST)


def byte_table(layout: Layout, profile: np.ndarray) -> np.ndarray:
    """Build the shared-memory table of a profile tile, with one-byte entries.

    Args:
        layout: with `entry_bytes` 1.
        profile: int [≤ tile, ≥ 26], half-bits, at most LARGEST.

    Returns:
        int32 [table_bytes / 4].
    """
    lookup = entry_bytes()
    scores = np.zeros((ROWS, layout.tile), np.int16)
    scores[:LETTERS, : len(profile)] = np.maximum(profile[:, :LETTERS].T, -STEEPEST)
    scores += STEEPEST
    # [rows, lanes, words, 2 pairs, 2 halves]
    cells = layout.to_pairs(scores).reshape(ROWS, layout.lanes, layout.words, 2, 2)
    words = np.empty((*cells.shape[:3], 4), np.uint8)
    low: np.ndarray | int = 0
    for byte, (pair, half) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        low = words[..., byte] = lookup[cells[..., pair, half], low]
    return layout.to_shared_memory(words.view(np.int32)[..., 0])
