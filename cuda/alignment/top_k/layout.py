"""Signatures of the kernels of kernels.py, and the rows of targets that they write, read on the host."""

import numpy as np

from cuda.alignment.gapless.lists import UPPER
from cuda.alignment.kernel_cache import hand_written

THREADS = 256
"""Maximum threads per block."""

DIGIT = 11
BINS = 2**DIGIT
"""Bins of a histogram, a multiple of THREADS."""

ROW_COUNT, ROW_TARGETS = UPPER + 1, UPPER + 2
"""Layout of a row after LOWER and UPPER: the number of targets, then k slots for database indices, then k
slots for scores. LOWER and UPPER select the targets that may still be among the k best."""

_TARGET_BITS = 31
"""Bits of a database index in a key."""

_MODULE = "cuda.alignment.top_k.kernels"
_MATRIX = "int32[:, ::1]"
# targets and scores of the lists, lengths, longest, the chunk's first target, rows, the first query's row,
# min_score, top_k, target_bits, state
_ENTRIES = (
    f"{_MATRIX}, {_MATRIX}, int32[::1], {_MATRIX}, int64, {_MATRIX}, int64, int64, int64, int64, {_MATRIX}"
)
COUNT_BOUNDS = hand_written(
    _MODULE, "count_bounds", f"void(int64[:, ::1], int64, int64, int64, {_MATRIX}, {_MATRIX}, int64)", THREADS
)
LIST_BOUNDS = hand_written(
    _MODULE,
    "list_bounds",
    f"void(int64[:, ::1], int64, {_MATRIX}, int64, int32[::1], {_MATRIX}, int64, {_MATRIX}, {_MATRIX}, "
    f"{_MATRIX}, {_MATRIX}, int64)",
    THREADS,
)
NARROW = hand_written(_MODULE, "narrow", f"void({_ENTRIES})", THREADS)
CHOOSE = hand_written(_MODULE, "choose", f"void({_ENTRIES}, {_MATRIX})", THREADS)
KERNELS = COUNT_BOUNDS, LIST_BOUNDS, NARROW, CHOOSE
"""The kernels, for blocks of up to THREADS."""


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
