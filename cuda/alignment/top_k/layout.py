"""The arrays that the kernels of kernels.py share, and the signatures of the kernels."""

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
