"""Rows of selected targets, as the kernels write them, on the host."""

import numpy as np

from cuda.alignment.top_k.layout import ROW_COUNT, ROW_TARGETS

_TARGET_BITS = 31
"""Bits of a database index in a key."""


def row_size(k: int) -> int:
    """Return the size of a row for up to k targets, in int32 numbers."""
    return ROW_TARGETS + 2 * k


def read_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of a row's database indices, int64, and scores, int32, in no particular order."""
    count, k = int(row[ROW_COUNT]), (len(row) - ROW_TARGETS) // 2
    targets, scores = row[ROW_TARGETS:][:count], row[ROW_TARGETS + k :][:count]
    return targets.astype(np.int64), scores.copy()


def read_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the content of several rows, int32 [n, row_size(k)], in a few operations for all of them.

    Returns:
        The number of targets in each row, int64 [n]; then all database indices, int64, and scores, int32, row
        by row, each by descending score, then by index.
    """
    k = (rows.shape[1] - ROW_TARGETS) // 2
    counts = rows[:, ROW_COUNT].astype(np.int64)
    longest = int(counts.max(initial=0))
    used = np.arange(longest) < counts[:, None]
    # one key for both criteria; scores are not negative, and indices are below 2³¹
    keys = rows[:, ROW_TARGETS + k :][:, :longest].astype(np.int64)
    keys <<= _TARGET_BITS
    np.subtract(rows[:, ROW_TARGETS:][:, :longest], keys, out=keys)
    keys[~used] = np.iinfo(np.int64).max
    keys.sort(axis=1)
    keys = keys[used]
    scores = -(keys >> _TARGET_BITS)
    return counts, keys & ((1 << _TARGET_BITS) - 1), scores.astype(np.int32)
