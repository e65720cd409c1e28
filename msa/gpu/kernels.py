"""Which kernels a batch of queries needs, and the compiling of those that are not kept on the disk yet."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from cuda.alignment.best.kernel import SIGNATURES as BEST
from cuda.alignment.best.kernel import THREADS as BEST_THREADS
from cuda.alignment.compiled import NotKept, compiled_kernel, kept_only, kernels_identity
from cuda.alignment.gapless.device import Device, ready
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import choose_launch, list_launch, widest
from cuda.alignment.gapless.layout import BYTE, HALF
from cuda.alignment.gotoh.kernel import pack_runs_kernel, row_kernel, walk_kernel
from cuda.alignment.gotoh.shapes import available_shapes, narrowest
from cuda.alignment.gotoh.sorting import SIGNATURES as SORTING
from cuda.alignment.gotoh.sorting import sorting_kernel
from msa.atomic import atomic_write

Progress = Callable[[int, int], None]
"""(kernels compiled, kernels to be compiled), as far as is known."""

Load = Callable[[], object]


class Compiling:
    """Compiles kernels before they are used, and says so; one for all GPUs.

    A file beside the kernels lists the query lengths for which all have been made, as to look for each takes
    longer than to load the few that the first query needs.

    Args:
        folder: of compiled kernels.
        progress: called when there are kernels to compile, and after each.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self._lock = threading.Lock()
        self._done = self._needed = 0
        self._made: dict[str, set[int]] | None = None

    def for_filter(self, lengths: Iterable[int]) -> None:
        """Make the filter's kernels for queries of these lengths."""
        new = self._new("filter", lengths)
        if not new:
            return
        best: dict[Any, Any] = BEST
        loads: list[Load] = [
            partial(compiled_kernel, kernel, signature, (BEST_THREADS, 1))
            for kernel, signature in best.items()
        ]
        for length in new:
            loads += _gapless(length, self._folder)
        self._make("filter", new, loads)

    def for_alignment(self, lengths: Iterable[int]) -> None:
        """Make the kernels that align queries of these lengths."""
        new = self._new("alignment", lengths)
        if not new:
            return
        shapes = available_shapes()
        loads: list[Load] = [walk_kernel, pack_runs_kernel]
        loads += [partial(sorting_kernel, kernel) for kernel in SORTING]
        kinds: list[tuple[Any, Any]] = [("packed", shapes.swift), ("traced", shapes.wide)]
        for kind, of_kind in kinds:
            places = np.unique(narrowest(of_kind, np.array(new))).tolist() if of_kind else []
            loads += [partial(row_kernel, kind, of_kind[place], self._folder) for place in places]
        self._make("alignment", new, loads)

    def _new(self, stage: str, lengths: Iterable[int]) -> list[int]:
        """Those lengths for which kernels may be missing."""
        with self._lock:
            if self._made is None:
                self._made = {"filter": set(), "alignment": set()}
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    kept = json.loads(self._list().read_text())
                    self._made = {name: set(map(int, kept[name])) for name in self._made}
            return sorted(set(lengths) - self._made[stage])

    def _list(self) -> Path:
        return self._folder / f"made_{kernels_identity()}.json"

    def _make(self, stage: str, lengths: Sequence[int], loads: Sequence[Load]) -> None:
        missing = []
        with kept_only():
            for load in loads:
                try:
                    load()
                except NotKept:
                    missing.append(load)
        if missing:
            self._count(needed=len(missing))
        for load in missing:
            load()
            self._count(done=1)
        with self._lock, contextlib.suppress(OSError):
            assert self._made is not None
            self._made[stage].update(lengths)
            content = {name: sorted(made) for name, made in self._made.items()}
            with atomic_write(self._list()) as stream:
                json.dump(content, stream)

    def _count(self, done: int = 0, needed: int = 0) -> None:
        with self._lock:
            self._done += done
            self._needed += needed
            self._progress(self._done, self._needed)


def _gapless(length: int, folder: Path) -> Iterator[Load]:
    """The kernels that bound and rescore a query of this length."""
    device = Device.current()
    table = device.name, device.shared_bytes
    tiles = -(-length // max(widest(*table, "bounds"), 1))
    for kind, arithmetic, launch in (
        ("bounds" if tiles == 1 else "bordered", BYTE, choose_launch(-(-length // tiles), *table, "bounds")),
        ("listed", HALF, list_launch(length, device.shared_bytes)),
    ):
        if launch is not None:
            variant = Variant(cast(Kind, kind), launch.layout, arithmetic, device.integer_maximum)
            yield partial(ready, variant, launch, folder, device)
