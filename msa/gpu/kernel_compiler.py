"""Compilation of the kernels that a batch of queries needs, before they are launched, with progress."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from cuda.alignment.device import SIMULATED, Device, select_device
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import choose_launch, choose_list_launch, max_query_length
from cuda.alignment.gapless.layout import BYTE, HALF
from cuda.alignment.gapless.runtime import prepare_kernel
from cuda.alignment.gapless.signatures import LIST_STRETCHES
from cuda.alignment.kernel_cache import (
    NotCached,
    cached_only,
    compiled_kernel,
    kernels_identity,
    set_cache_folder,
)
from cuda.alignment.smith_waterman.plan import available_shapes, narrowest
from cuda.alignment.smith_waterman.signatures import KERNELS as ALIGNMENT_KERNELS
from cuda.alignment.smith_waterman.signatures import row_kernel
from cuda.alignment.top_k.layout import KERNELS as TOP_K_KERNELS
from msa.io.atomic import atomic_write
from msa.progress import CompileProgress

LoadKernel = Callable[[], object]
"""Loads a kernel from the cache, or compiles it."""

_FILTER, _ALIGNMENT, _MANY_ALIGNMENTS = "filter", "alignment", "many alignments"
_ALL = "all"
_STAGES = {
    _FILTER: (_FILTER,),
    _ALIGNMENT: (_ALIGNMENT,),
    _MANY_ALIGNMENTS: (_MANY_ALIGNMENTS,),
    _ALL: (_FILTER, _ALIGNMENT, _MANY_ALIGNMENTS),
}
"""The stages of the search whose kernels are compiled together."""

_COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = sys.argv[1:]; from msa.gpu.kernel_compiler import main; main()",
)
MAX_PROCESSES = 16
"""Maximum number of processes that compile; each opens the GPU, which takes memory there."""
MIN_KERNELS = 3
"""Minimum number of kernels to start processes for; starting one takes as long as compiling a kernel."""


class KernelCompiler:
    """A compiler of kernels that works before they are used, and reports progress.

    A file next to the kernels lists the query lengths whose kernels have all been compiled, because looking
    for every kernel takes longer than loading the few that the first query needs.

    Args:
        folder: of compiled kernels.
        progress: called when there are kernels to compile, and after each one.
        share: index of this process among those that need the same kernels at the same time, and their
            number. Each process compiles its share first, and then finds most other kernels in the cache. If
            two processes compile the same kernel, both write it, atomically.
    """

    def __init__(self, folder: Path, progress: CompileProgress, share: tuple[int, int] = (0, 1)) -> None:
        self._folder, self._progress, self._share = folder, progress, share
        self._lock = threading.Lock()
        self._compiled = self._needed = 0
        self._complete_lengths: dict[str, set[int]] | None = None

    def compile_search(self, lengths: Iterable[int]) -> None:
        """Compile all kernels for queries of these lengths, including those for many pairs."""
        lengths = list(lengths)
        new = sorted(set().union(*(self._incomplete_lengths(stage, lengths) for stage in _STAGES[_ALL])))
        if new:
            self._compile_stage(_ALL, new)

    def compile_filter(self, lengths: Iterable[int]) -> None:
        """Compile the filter's kernels for queries of these lengths."""
        new = self._incomplete_lengths(_FILTER, lengths)
        if new:
            self._compile_stage(_FILTER, new)

    def compile_alignment(self, lengths: Iterable[int], many: bool) -> None:
        """Compile the alignment kernels for these query lengths, with `many` also those for many pairs."""
        stage = _MANY_ALIGNMENTS if many else _ALIGNMENT
        new = self._incomplete_lengths(stage, lengths)
        if new:
            self._compile_stage(stage, new)

    def _incomplete_lengths(self, stage: str, lengths: Iterable[int]) -> list[int]:
        """Return the lengths for which kernels may be missing."""
        set_cache_folder(self._folder)
        with self._lock:
            if self._complete_lengths is None:
                self._complete_lengths = {_FILTER: set(), _ALIGNMENT: set(), _MANY_ALIGNMENTS: set()}
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    content = json.loads(self._list_path().read_text())
                    self._complete_lengths = {
                        name: set(map(int, content[name])) for name in self._complete_lengths
                    }
            return sorted(set(lengths) - self._complete_lengths[stage])

    def _list_path(self) -> Path:
        return self._folder / f"made_{kernels_identity()}.json"

    def _compile_stage(self, stage: str, lengths: Sequence[int]) -> None:
        self._compile_missing(
            _stage_kernels(stage, lengths, self._folder), partial(self._compile_in_processes, stage, lengths)
        )
        with self._lock, contextlib.suppress(OSError):
            assert self._complete_lengths is not None
            for part in _STAGES[stage]:
                self._complete_lengths[part].update(lengths)
            content = {name: sorted(complete) for name, complete in self._complete_lengths.items()}
            with atomic_write(self._list_path()) as stream:
                json.dump(content, stream)

    def _compile_missing(
        self,
        kernels: Sequence[LoadKernel],
        compile_many: Callable[[Sequence[int]], Iterator[int]] = lambda indices: iter(()),
    ) -> None:
        """Compile the kernels that are not in the cache: first this process's share, then what is left.

        Args:
            kernels: all kernels.
            compile_many: may compile some of those with the given indices; yields their number as it grows.
        """
        missing = [index for index, load in enumerate(kernels) if not _load_cached(load)]
        first, step = self._share
        own = missing[first::step]
        if own:
            self._report(needed=len(own))
        reported = 0
        for reported in compile_many(own):  # noqa: B007
            self._report(compiled=1)
        for index in own:
            if not _load_cached(kernels[index]):
                kernels[index]()
                self._report(compiled=1 if reported < len(own) else 0)
                reported += 1
        for index in missing:
            if not _load_cached(kernels[index]):
                self._report(needed=1)
                kernels[index]()
                self._report(compiled=1)

    def _compile_in_processes(self, stage: str, lengths: Sequence[int], own: Sequence[int]) -> Iterator[int]:
        """Compile kernels of a stage in several processes, if there are enough of them and of cores."""
        # half of the cores, because a run compiles the network's kernels at the same time
        cores = len(os.sched_getaffinity(0)) // 2
        processes = min(len(own), cores // self._share[1], MAX_PROCESSES)
        if processes < 2 or len(own) < MIN_KERNELS or SIMULATED:
            return
        gpu, folder = Device.current().number, str(self._folder)
        yield from _run_jobs(
            _Job(gpu, folder, stage, tuple(lengths), tuple(own[process::processes]))
            for process in range(processes)
        )

    def _report(self, compiled: int = 0, needed: int = 0) -> None:
        with self._lock:
            self._compiled += compiled
            self._needed += needed
            self._progress(self._compiled, self._needed)


@dataclass(frozen=True)
class _Job:
    """Kernels that one process compiles.

    Args:
        gpu: number of the GPU.
        folder: of compiled kernels.
        stage: stage of the search.
        lengths: query lengths.
        indices: of the kernels, among all that the stage needs for these lengths.
    """

    gpu: int
    folder: str
    stage: str
    lengths: tuple[int, ...]
    indices: tuple[int, ...]


def _run_jobs(jobs: Iterable[_Job]) -> Iterator[int]:
    """Do each job in a process of its own; yield the number of compiled kernels as it grows.

    A process that fails leaves its kernels uncompiled.
    """
    reading, writing = os.pipe()
    processes = []
    try:
        with os.fdopen(reading) as lines:
            try:
                for job in jobs:
                    process = subprocess.Popen(
                        [*_COMMAND, *sys.path],
                        stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.DEVNULL, text=True,
                    )  # fmt: skip
                    processes.append(process)
                    assert process.stdin is not None
                    with contextlib.suppress(BrokenPipeError), process.stdin:
                        json.dump(asdict(job), process.stdin)
            finally:
                os.close(writing)
            for compiled, _ in enumerate(lines, 1):
                yield compiled
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Compile the kernels of the job on standard input; write a line after each."""
    job = _Job(**json.load(sys.stdin))
    select_device(job.gpu)
    folder = Path(job.folder)
    set_cache_folder(folder)
    kernels = _stage_kernels(job.stage, job.lengths, folder)
    for index in job.indices:
        kernels[index]()
        print(flush=True)


def _stage_kernels(stage: str, lengths: Sequence[int], folder: Path) -> list[LoadKernel]:
    """Return the kernels that a stage of the search needs for queries of these lengths, each once."""
    kernels: list[LoadKernel] = []
    # those of the alignment take longer to compile, so they come first
    if stage != _FILTER:
        kernels += alignment_kernels(lengths, folder, many=stage != _ALIGNMENT)
    if stage in (_FILTER, _ALL):
        kernels += filter_kernels(lengths, folder)
    return list({(getattr(load, "func", load), getattr(load, "args", ())): load for load in kernels}.values())


def filter_kernels(lengths: Sequence[int], folder: Path) -> list[LoadKernel]:
    """Return the kernels that the filter needs on the current GPU for queries of these lengths."""
    kernels: list[LoadKernel] = [
        partial(compiled_kernel, kernel) for kernel in (*TOP_K_KERNELS, LIST_STRETCHES)
    ]
    for length in lengths:
        kernels += _gapless_kernels(length, folder)
    return kernels


def alignment_kernels(lengths: Sequence[int], folder: Path, many: bool) -> list[LoadKernel]:
    """Return the kernels that align queries of these lengths on the current GPU.

    Args:
        lengths: residues of the queries.
        folder: of compiled kernels.
        many: include the kernels for many pairs in one call.
    """
    shapes = available_shapes()
    kinds: list[tuple[Any, Any]] = [("packed", shapes.low_latency), ("traced", shapes.wide)]
    if many:
        kinds.append(("packed", shapes.packed))
    used = [
        (candidates[index].columns, kind, candidates[index])
        for kind, candidates in kinds
        if candidates
        for index in np.unique(narrowest(candidates, np.array(lengths))).tolist()
    ]
    # those with many columns take longest
    used.sort(key=lambda each: -each[0])
    kernels: list[LoadKernel] = [partial(row_kernel, kind, shape, folder) for _, kind, shape in used]
    return kernels + [partial(compiled_kernel, kernel) for kernel in ALIGNMENT_KERNELS]


def _gapless_kernels(length: int, folder: Path) -> Iterator[LoadKernel]:
    """Yield the kernels that bound and score a query of this length."""
    device = Device.current()
    max_tile = max_query_length(device.name, device.shared_bytes, "bounds", folder)
    tiles = -(-length // max(max_tile, 1))
    bounds = choose_launch(-(-length // tiles), device.name, device.shared_bytes, "bounds", folder)
    for kind, arithmetic, launch in (
        ("bounds" if tiles == 1 else "bordered", BYTE, bounds),
        ("listed", HALF, choose_list_launch(length, device.shared_bytes)),
    ):
        if launch is not None:
            variant = Variant(cast(Kind, kind), launch.layout, arithmetic, device.integer_maximum)
            yield partial(prepare_kernel, variant, launch, folder, device)


def _load_cached(load: LoadKernel) -> bool:
    """Load a kernel if it is in the cache; return whether it is."""
    with cached_only():
        try:
            load()
        except NotCached:
            return False
    return True
