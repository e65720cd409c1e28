"""Which kernels queries need."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from cuda.alignment.compiled import compiled_kernel
from cuda.alignment.gapless.device import Device, ready
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import choose_launch, list_launch, widest
from cuda.alignment.gapless.layout import BYTE, HALF
from cuda.alignment.smith_waterman.kernel import pack_runs_kernel, row_kernel, walk_kernel
from cuda.alignment.smith_waterman.shapes import available_shapes, narrowest
from cuda.alignment.smith_waterman.sorting import SIGNATURES as SORTING
from cuda.alignment.smith_waterman.sorting import sorting_kernel
from cuda.alignment.top_k.kernel import SIGNATURES as BEST
from cuda.alignment.top_k.kernel import THREADS as BEST_THREADS

Load = Callable[[], object]
"""Loads a kernel, or compiles it."""


def filter_kernels(lengths: Sequence[int], folder: Path) -> list[Load]:
    """What the filter needs on the current GPU for queries of these lengths."""
    best: dict[Any, Any] = BEST
    loads: list[Load] = [
        partial(compiled_kernel, kernel, signature, (BEST_THREADS, 1)) for kernel, signature in best.items()
    ]
    for length in lengths:
        loads += _gapless(length, folder)
    return loads


def alignment_kernels(lengths: Sequence[int], folder: Path, many: bool) -> list[Load]:
    """What alignments need on the current GPU for queries of these lengths, also for many in one call."""
    shapes = available_shapes()
    loads: list[Load] = [walk_kernel, pack_runs_kernel]
    loads += [partial(sorting_kernel, kernel) for kernel in SORTING]
    kinds: list[tuple[Any, Any]] = [("packed", shapes.swift), ("traced", shapes.wide)]
    if many:
        kinds.append(("packed", shapes.packed))
    for kind, of_kind in kinds:
        places = np.unique(narrowest(of_kind, np.array(lengths))).tolist() if of_kind else []
        loads += [partial(row_kernel, kind, of_kind[place], folder) for place in places]
    return loads


def _gapless(length: int, folder: Path) -> Iterator[Load]:
    """The kernels that bound and rescore a query of this length."""
    device = Device.current()
    widest_tile = widest(device.name, device.shared_bytes, "bounds", folder)
    tiles = -(-length // max(widest_tile, 1))
    bounds = choose_launch(-(-length // tiles), device.name, device.shared_bytes, "bounds", folder)
    for kind, arithmetic, launch in (
        ("bounds" if tiles == 1 else "bordered", BYTE, bounds),
        ("listed", HALF, list_launch(length, device.shared_bytes)),
    ):
        if launch is not None:
            variant = Variant(cast(Kind, kind), launch.layout, arithmetic, device.integer_maximum)
            yield partial(ready, variant, launch, folder, device)
