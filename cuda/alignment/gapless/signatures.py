"""The signatures of the gapless kernels, hand-written (kernels.py) and generated (generator.py)."""

from cuda.alignment.kernel_cache import hand_written

THREADS = 128
"""Threads per block of the hand-written kernels."""

# table int32 [table_bytes / 4]; residues int32 [bytes / 4], four letter codes per word; offsets int64 [n], in
# bytes; lengths int32 [n]
_TARGETS = "int32[::1], int32[::1], int64[::1], int32[::1]"
# work int32 [2], zero between calls
_COMMON = f"{_TARGETS}, int32[::1]"

GENERATED_SIGNATURES = {
    # the tables of consecutive queries; state, scores, targets and ends of the lists (lists.py); row of the
    # first query in the lists; blocks per query; residues per stretch, no fewer than the query's length and a
    # multiple of 4
    "listed": f"void({_TARGETS}, int32[:, ::1], int32[:, ::1], int32[:, ::1], int32[:, ::1], int32, int32, "
    "int32)",
    # bounds int16 [n]; slack (layout.py); length of the longest target that is not cut into parts, at most
    # 2²⁵; residues to process before a part, no fewer than the query's length and a multiple of 4
    "bounds": f"void({_COMMON}, int16[::1], int32, int32, int32)",
    # border int32 [residues that a launch may span / 2], two half-precision numbers per word; 1 for a query's
    # first tile; first byte and end of the range in which the launch's targets start
    "bordered": f"void({_COMMON}, int16[::1], int32, int32[::1], int32, int64, int64)",
}

_MODULE = "cuda.alignment.gapless.kernels"
RESCORE_LISTED = hand_written(
    _MODULE, "rescore_listed",
    "void(int32[::1], uint8[::1], int64[::1], int32[::1], int32[:, ::1], int32[:, ::1], int32[:, ::1], "
    "int32)",
    THREADS,
)  # fmt: skip
FILL_UNBOUNDED = hand_written(_MODULE, "fill_unbounded", "void(int16[::1])", THREADS)
KERNELS = RESCORE_LISTED, FILL_UNBOUNDED
"""The hand-written kernels."""
