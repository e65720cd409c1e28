"""The kernels of the Gotoh alignment and their signatures: generated row kernels and hand-written ones."""

from pathlib import Path
from typing import Any, Literal

from cuda.alignment.kernel_cache import KernelSource, compiled_kernel, generated_function, hand_written
from cuda.alignment.smith_waterman.generator import Shape, packed_source, wide_source

Kind = Literal["packed", "wide", "traced"]

BUCKETS = 1024
LONG = 8192
"""Minimum rows of a long pair."""
LONG_BUCKET = 512
"""Bucket of pairs with LONG rows."""
QUERY = 4
"""Numbers per query in `queries`: first row in the profiles, residues, lanes and columns of the traced
kernel."""
SUMMARY = 3
"""Numbers per query in `summary`: long pairs, non-empty pairs, and whether a profile score exceeds ± 127."""
TASK = 6
"""Numbers per profile tile in a plan's table: output offset, first row in the profiles, number of rows, lanes
and columns of the kernel, bytes per score."""
THREADS, WALK_THREADS = 128, 32
PATH = 9
"""Numbers per pair in `paths`: a record (see AlignmentPaths) and the offset of its packed runs."""

# residues, offsets, lengths, target, order, profiles, table, blocks, opening, extending
_ROWS = (
    "uint8[::1], int64[::1], int32[::1], int64[::1], int32[::1], int32[::1], int32[::1], int64, int32, int32"
)
_WIDE = f"void({_ROWS}, int64[::1], int32[::1], int32[::1], int32[::1])"
ROW_SIGNATURES: dict[Kind, str] = {
    "packed": f"void({_ROWS}, int32[::1])", "wide": _WIDE, "traced": _WIDE
}  # fmt: skip

_KERNELS, _SORTING = "cuda.alignment.smith_waterman.kernels", "cuda.alignment.smith_waterman.sorting"
WALK = hand_written(
    _KERNELS, "walk",
    "void(uint8[::1], int64[::1], int64[::1], int32[::1], int32[::1], int16[::1], uint8[::1], int32[::1], "
    "int64[::1], int64, int64, int64, int32[::1], int32[::1], int32[::1])",
    WALK_THREADS,
)  # fmt: skip
PACK_RUNS = hand_written(
    _KERNELS, "pack_runs", "void(int64[::1], int32[::1], int32[::1], int32[::1])", WALK_THREADS
)
CLEAR = hand_written(_SORTING, "clear", "void(int32[::1])", THREADS)
COUNT_PAIRS = hand_written(
    _SORTING, "count_pairs",
    "void(int32[::1], int64[::1], int32[::1], int32[::1], boolean, int32[::1], int32[::1])", THREADS,
)  # fmt: skip
SCAN_COUNTS = hand_written(
    _SORTING, "scan_counts", "void(int32[::1], int32[::1], int16[::1], int32[::1])", THREADS
)
ORDER_PAIRS = hand_written(
    _SORTING, "order_pairs",
    "void(int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], boolean)", THREADS,
)  # fmt: skip
ARRANGE_PROFILES = hand_written(
    _SORTING, "arrange_profiles", "void(int16[::1], int32[::1], int64, int32[::1])", THREADS
)
KERNELS = WALK, PACK_RUNS, CLEAR, COUNT_PAIRS, SCAN_COUNTS, ORDER_PAIRS, ARRANGE_PROFILES
"""The hand-written kernels."""


def row_kernel(kind: Kind, shape: Shape, folder: Path | None) -> Any:
    """Return the row kernel for a shape, compiled for the current GPU or loaded from a folder of kernels."""
    return compiled_kernel(row_kernel_source(kind, shape, folder))


def row_kernel_source(kind: Kind, shape: Shape, folder: Path | None) -> KernelSource:
    """Describe a row kernel; its module is written to a folder, if there is one, to be compiled."""
    bounds = shape.threads, 1

    def make() -> Any:
        if folder is None:
            return row_kernel_function(kind, shape)
        return generated_function(_row_kernel_text(kind, shape), "kernel", folder, bounds)

    identity = f"gotoh_{kind}_{shape.lanes}x{shape.columns}"
    return KernelSource(identity, "kernel", ROW_SIGNATURES[kind], bounds, make)


def row_kernel_function(kind: Kind, shape: Shape) -> Any:
    """Return the row kernel for a shape as a Python function, not compiled."""
    names: dict[str, Any] = {"__name__": f"gotoh_{kind}_{shape.lanes}x{shape.columns}"}
    exec(compile(_row_kernel_text(kind, shape), f"<{names['__name__']}>", "exec"), names)
    return names["kernel"]


def _row_kernel_text(kind: Kind, shape: Shape) -> str:
    """Generate the source of the module with the row kernel for a shape."""
    return packed_source(shape) if kind == "packed" else wide_source(shape, traced=kind == "traced")
