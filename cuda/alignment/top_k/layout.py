"""The arrays that the kernels of kernels.py share, and the signatures of the kernels."""

from cuda.alignment.kernel_cache import hand_written

THREADS = 1024
"""Maximum threads per block."""

DIGIT = 11
BINS = 2**DIGIT
"""Bins of a histogram, a multiple of THREADS."""

LOWER, UPPER = range(2)
"""Indices in `state` and in a row: targets with LOWER ≤ bound < UPPER are to be listed."""

FINISHED = 2
"""Index in `state`: the number of blocks that have finished."""

STATE_SIZE = 3

ROW_COUNT, ROW_TARGETS = 2, 3
"""Layout of a row after LOWER and UPPER: the number of targets, then k slots for database indices, then k
slots for scores. LOWER and UPPER select the targets that may still be among the k best."""

FIRST, FIRST_SCORES, SECOND, SECOND_SCORES = range(4)
"""Rows of `lists`: two lists of targets, each followed by the exact scores, ≥ 0, by position in the list."""

LIST_ROWS = 4

_MODULE = "cuda.alignment.top_k.kernels"
_ENTRIES = "int32[:, ::1], int64, int32[::1], int64, int64, int64"
COUNT_BOUNDS = hand_written(
    _MODULE, "count_bounds", "void(int64[::1], int64, int64, int64, int32[::1], int32[::1])", THREADS
)
LIST_BOUNDS = hand_written(_MODULE, "list_bounds", "void(int64[::1], int64, int32[::1], int32[::1])", THREADS)
NARROW = hand_written(_MODULE, "narrow", f"void({_ENTRIES}, int32[::1])", THREADS)
CHOOSE = hand_written(_MODULE, "choose", f"void({_ENTRIES}, int32[::1])", THREADS)
KERNELS = COUNT_BOUNDS, LIST_BOUNDS, NARROW, CHOOSE
"""The kernels, for blocks of up to THREADS."""
