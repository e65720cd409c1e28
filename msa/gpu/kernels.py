"""Which kernels a batch of queries needs, and the compiling of those that are not kept on the disk yet."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from cuda.alignment.best.kernel import SIGNATURES as BEST
from cuda.alignment.best.kernel import THREADS as BEST_THREADS
from cuda.alignment.compiled import NotKept, compiled_kernel, kept_only
from cuda.alignment.gapless.device import Device, ready
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import choose_launch, list_launch, widest
from cuda.alignment.gapless.layout import BYTE, HALF
from cuda.alignment.gotoh.kernel import pack_runs_kernel, row_kernel, walk_kernel
from cuda.alignment.gotoh.shapes import available_shapes, narrowest
from cuda.alignment.gotoh.sorting import SIGNATURES as SORTING
from cuda.alignment.gotoh.sorting import sorting_kernel

Progress = Callable[[int, int], None]
"""(kernels compiled, kernels to be compiled), as far as is known."""

Load = Callable[[], object]


class Compiling:
    """Compiles kernels before they are used, and says so; one for all GPUs.

    Args:
        folder: of compiled kernels.
        progress: called when there are kernels to compile, and after each.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self._lock = threading.Lock()
        self._done = self._needed = 0

    def for_filter(self, lengths: Iterable[int]) -> None:
        """Make the filter's kernels for queries of these lengths."""
        best: dict[Any, Any] = BEST
        loads: list[Load] = [
            partial(compiled_kernel, kernel, signature, (BEST_THREADS, 1))
            for kernel, signature in best.items()
        ]
        for length in sorted(set(lengths)):
            loads += _gapless(length, self._folder)
        self._make(loads)

    def for_alignment(self, lengths: Sequence[int]) -> None:
        """Make the kernels that align a batch of queries of these lengths."""
        shapes, every = available_shapes(), np.array(sorted(set(lengths)))
        needed: list[Load] = [walk_kernel, pack_runs_kernel]
        needed += [partial(sorting_kernel, kernel) for kernel in SORTING]
        kinds: list[tuple[Any, Any]] = [("packed", shapes.swift), ("traced", shapes.wide)]
        for kind, of_kind in kinds:
            places = np.unique(narrowest(of_kind, every)).tolist() if of_kind else []
            needed += [partial(row_kernel, kind, of_kind[place], self._folder) for place in places]
        self._make(needed)

    def _make(self, loads: Sequence[Load]) -> None:
        missing = []
        with kept_only():
            for load in loads:
                try:
                    load()
                except NotKept:
                    missing.append(load)
        if not missing:
            return
        self._count(needed=len(missing))
        for load in missing:
            load()
            self._count(done=1)

    def _count(self, done: int = 0, needed: int = 0) -> None:
        with self._lock:
            self._done += done
            self._needed += needed
            self._progress(self._done, self._needed)


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
