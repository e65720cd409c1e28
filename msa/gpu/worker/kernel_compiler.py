"""Compilation of the kernels that a batch of queries needs, before they are launched, with progress."""

import contextlib
import gc
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from cuda.alignment.device import Device
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch_table import (
    Launch,
    border_launch,
    choose_launch,
    choose_list_launch,
    max_query_length,
)
from cuda.alignment.gapless.layout import BYTE
from cuda.alignment.gapless.list_scorer import list_variant
from cuda.alignment.gapless.runtime import kernel_source
from cuda.alignment.gapless.signatures import RESCORE_LISTED
from cuda.alignment.kernel_cache import (
    KernelSource,
    compile_into,
    compiled_kernel,
    is_cached,
    load_compiler,
    set_cache_folder,
)
from cuda.alignment.smith_waterman.generator import Shape
from cuda.alignment.smith_waterman.plan import narrowest, shapes_for
from cuda.alignment.smith_waterman.signatures import KERNELS as ALIGNMENT_KERNELS
from cuda.alignment.smith_waterman.signatures import Kind, row_kernel_source
from cuda.alignment.top_k.layout import KERNELS as TOP_K_KERNELS
from msa.base.hardware import available_cores
from msa.base.progress import CompileProgress
from msa.base.services.forks import forked_workers
from msa.base.services.service import Service
from msa.gpu.device.devices import check_capability

FILTER, _ALIGNMENT, MANY_ALIGNMENTS = "filter", "alignment", "many alignments"
_USUAL, _ALL = "filter and alignment", "all"
_STAGES = {
    FILTER: (FILTER,),
    _ALIGNMENT: (_ALIGNMENT,),
    MANY_ALIGNMENTS: (MANY_ALIGNMENTS,),
    _USUAL: (FILTER, _ALIGNMENT),
    _ALL: (FILTER, _ALIGNMENT, MANY_ALIGNMENTS),
}
"""The stages of the search whose kernels are compiled together."""

# objects after which a compiling process looks for garbage; Python's default costs a tenth of the time
_COLLECTION_THRESHOLD = 100_000
# `fold` compiles kernels before it opens the search engine, which then waits for them
_search_lock = threading.Lock()
MAX_PROCESSES = 32
"""Maximum number of processes that compile; each needs 0.3 GB of memory."""
MIN_KERNELS = 3
"""Minimum number of kernels to start processes for; starting one takes as long as compiling a kernel."""
# added to the niceness of processes that no search waits for: more than for the kernels of a network
# (`model.planning.kernel_process`)
_NICENESS = 19


class KernelCompiler:
    """A compiler of kernels that works before they are used, and reports progress.

    Args:
        folder: of compiled kernels.
        progress: called when there are kernels to compile, and after each one.
        share: index of this process among those that need the same kernels at the same time, and their
            number. Each process compiles its share first, and then finds most other kernels in the cache. If
            two processes compile the same kernel, both write it, atomically.
        device: the GPU to compile for, which this machine need not have; None is the current one.
    """

    def __init__(
        self,
        folder: Path,
        progress: CompileProgress,
        share: tuple[int, int] = (0, 1),
        device: Device | None = None,
    ) -> None:
        self._folder, self._progress, self._share = folder, progress, share
        self._given_device = device
        self._lock, self._alignment_lock = threading.Lock(), threading.Lock()
        self._compiled = self._needed = 0
        self._complete_lengths: dict[str, set[int]] = {
            FILTER: set(), _ALIGNMENT: set(), MANY_ALIGNMENTS: set()
        }  # fmt: skip

    @classmethod
    def for_gpu(
        cls, folder: Path, progress: CompileProgress, name: str, capability: tuple[int, int]
    ) -> "KernelCompiler":
        """Return a compiler for a GPU that this machine need not have.

        Args:
            folder: see KernelCompiler.
            progress: see KernelCompiler.
            name: as the driver reports it, such as "NVIDIA H200"; it selects tuned launches.
            capability: compute capability.

        Raises:
            MissingError: the kernels do not run on such a GPU.
        """
        check_capability(name or "the GPU", capability)
        return cls(folder, progress, device=Device.of_architecture(name, capability))

    def compile_search(self, lengths: Iterable[int], many: bool = True) -> None:
        """Compile the kernels of filter and alignment for queries of these lengths.

        Of the calls in this process without the kernels for many pairs, one at a time compiles.
        """
        with contextlib.nullcontext() if many else _search_lock:
            self.compile_stage(_ALL if many else _USUAL, lengths)

    def compile_alignment(self, lengths: Iterable[int]) -> bool:
        """Compile the alignment kernels for queries of these lengths, except those for many pairs.

        Returns:
            Whether those for many pairs have been compiled, too.
        """
        lengths = list(lengths)
        if self._incomplete_lengths(_ALIGNMENT, lengths):
            # several threads align, and should not compile the same kernels
            with self._alignment_lock:
                self.compile_stage(_ALIGNMENT, lengths)
        return not self._incomplete_lengths(MANY_ALIGNMENTS, lengths)

    def load(self, lengths: Iterable[int]) -> None:
        """Load the compiled kernels of filter and alignment for queries of these lengths.

        Before it loads a kernel, the driver waits for all work that is queued on the GPU, which should
        therefore be idle.
        """
        lengths = sorted(set(lengths))
        stage = _USUAL if self._incomplete_lengths(MANY_ALIGNMENTS, lengths) else _ALL
        for kernel in _stage_kernels(stage, lengths, self._folder, self._device):
            compiled_kernel(kernel)

    def _incomplete_lengths(self, stage: str, lengths: Iterable[int]) -> list[int]:
        """Return the lengths for which kernels may be missing."""
        set_cache_folder(self._folder)
        with self._lock:
            new = sorted(set(lengths) - self._complete_lengths[stage])
            if new and not self._missing(_stage_kernels(stage, new, self._folder, self._device)):
                self._complete_lengths[stage].update(new)
                return []
            return new

    def _missing(self, kernels: Sequence[KernelSource]) -> list[int]:
        """Return the indices of the kernels that are not in the cache."""
        capability = self._device.capability
        return [
            index for index, kernel in enumerate(kernels) if not is_cached(kernel, capability, self._folder)
        ]

    @property
    def _device(self) -> Device:
        return self._given_device or Device.current()

    def compile_stage(self, stage: str, lengths: Iterable[int]) -> None:
        """Compile the kernels of a stage for those lengths for which some may be missing.

        Those for many pairs are compiled with low priority, as no search waits for them.
        """
        lengths = list(lengths)
        new = sorted(set().union(*(self._incomplete_lengths(part, lengths) for part in _STAGES[stage])))
        if not new:
            return
        kernels = _stage_kernels(stage, new, self._folder, self._device)
        self._compile_missing(kernels, partial(self._compile_in_processes, stage, new))
        with self._lock:
            for part in _STAGES[stage]:
                self._complete_lengths[part].update(new)

    def _compile_missing(
        self,
        kernels: Sequence[KernelSource],
        compile_many: Callable[[Sequence[int]], Iterator[int]] = lambda indices: iter(()),
    ) -> None:
        """Compile the kernels that are not in the cache: first this process's share, then what is left.

        Args:
            kernels: all kernels.
            compile_many: may compile some of those with the given indices; yields their number as it grows.
        """
        capability, folder = self._device.capability, self._folder
        missing = self._missing(kernels)
        first, step = self._share
        own = missing[first::step]
        if own:
            self._report(needed=len(own))
        reported = 0
        for reported in compile_many(own):  # noqa: B007
            self._report(compiled=1)
        for index in own:
            if not is_cached(kernels[index], capability, folder):
                compile_into(folder, kernels[index], capability)
                self._report(compiled=1 if reported < len(own) else 0)
                reported += 1
        for index in missing:
            if not is_cached(kernels[index], capability, folder):
                self._report(needed=1)
                compile_into(folder, kernels[index], capability)
                self._report(compiled=1)

    def _compile_in_processes(self, stage: str, lengths: Sequence[int], own: Sequence[int]) -> Iterator[int]:
        """Compile kernels of a stage in several processes, if there are enough of them and of cores."""
        cores = available_cores()
        processes = min(len(own), cores // self._share[1], MAX_PROCESSES)
        # in this process, kernels that no search waits for would take the interpreter's lock from the search
        least = 1 if stage == MANY_ALIGNMENTS else MIN_KERNELS
        if len(own) < least or processes < min(2, least):
            return
        job = _Job(self._device, self._folder, stage, tuple(lengths))
        yield from _run_job(job, own, processes)

    def _report(self, compiled: int = 0, needed: int = 0) -> None:
        with self._lock:
            self._compiled += compiled
            self._needed += needed
            self._progress(self._compiled, self._needed)


@dataclass(frozen=True)
class _Job:
    """The kernels that a stage needs, some of which processes compile."""

    device: Device
    folder: Path
    stage: str
    lengths: tuple[int, ...]


def _run_job(job: _Job, indices: Sequence[int], processes: int) -> Iterator[int]:
    """Compile some of a job's kernels in processes; yield the number of compiled kernels as it grows.

    After an error, some kernels are not compiled.
    """
    service = Service(f"{__name__}:JobHandler", output=subprocess.DEVNULL)
    try:
        # the compilation in this process reports errors
        with contextlib.suppress(Exception):
            yield from service.stream("compile", job, list(indices), processes)
    finally:
        service.kill()


class JobHandler:
    """A handler that compiles kernels in forked workers."""

    def __init__(self, report: Callable[..., None]) -> None:
        # a compilation makes millions of objects, most of which are freed without the collector
        gc.set_threshold(_COLLECTION_THRESHOLD)

    def compile(self, job: _Job, indices: list[int], processes: int) -> Iterator[int]:
        """Compile some of a job's kernels; yield the number of compiled kernels as it grows."""
        # found once, for all workers that are forked
        _job_kernels(job)
        load_compiler(job.device.capability)
        with forked_workers(processes, _NICENESS if job.stage == MANY_ALIGNMENTS else 0) as workers:
            calls = [workers.submit(_compile_unless_cached, job, index) for index in indices]
            succeeded = (call for call in as_completed(calls) if call.exception() is None)
            for compiled, _ in enumerate(succeeded, 1):
                yield compiled


@cache
def _job_kernels(job: _Job) -> list[KernelSource]:
    return _stage_kernels(job.stage, job.lengths, job.folder, job.device)


def _compile_unless_cached(job: _Job, index: int) -> None:
    kernel = _job_kernels(job)[index]
    if not is_cached(kernel, job.device.capability, job.folder):
        compile_into(job.folder, kernel, job.device.capability)


def _stage_kernels(stage: str, lengths: Sequence[int], folder: Path, device: Device) -> list[KernelSource]:
    """Return the kernels that a stage of the search needs for queries of these lengths, each once."""
    kernels: list[KernelSource] = []
    # those of the alignment take longer to compile, so they come first
    if stage != FILTER:
        kernels += alignment_kernels(lengths, folder, device, MANY_ALIGNMENTS in _STAGES[stage])
    if FILTER in _STAGES[stage]:
        kernels += filter_kernels(lengths, folder, device)
    return list(dict.fromkeys(kernels))


def filter_kernels(lengths: Sequence[int], folder: Path, device: Device) -> list[KernelSource]:
    """Return the kernels that the filter needs on a GPU for queries of these lengths."""
    kernels = [*TOP_K_KERNELS, RESCORE_LISTED]
    for length in lengths:
        kernels += _gapless_kernels(length, folder, device)
    return kernels


def alignment_kernels(lengths: Sequence[int], folder: Path, device: Device, many: bool) -> list[KernelSource]:
    """Return the kernels that align queries of these lengths on a GPU."""
    shapes = shapes_for(device.capability)
    kinds: list[tuple[Kind, tuple[Shape, ...]]] = [
        ("packed", shapes.low_latency),
        ("traced", shapes.wide),
        ("wide", shapes.wide),
    ]
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
    kernels = [row_kernel_source(kind, shape, folder) for _, kind, shape in used]
    return [*kernels, *ALIGNMENT_KERNELS]


def _gapless_kernels(length: int, folder: Path, device: Device) -> Iterator[KernelSource]:
    """Yield the kernels that bound and score a query of this length."""
    max_tile = max_query_length(device.name, device.shared_bytes, folder)
    tiles = -(-length // max(max_tile, 1))
    bounds = choose_launch(-(-length // tiles), device.name, device.shared_bytes, folder)
    kernels: list[tuple[Variant, Launch]] = []
    if bounds is not None:
        bounds = bounds if tiles == 1 else border_launch(bounds)
        kind: Literal["bounds", "bordered"] = "bounds" if tiles == 1 else "bordered"
        kernels.append((Variant(kind, bounds.layout, BYTE, device.integer_maximum), bounds))
    listed = choose_list_launch(length, device.shared_bytes)
    if listed is not None:
        kernels.append((list_variant(listed, device), listed))
    for variant, launch in kernels:
        yield kernel_source(variant, (launch.threads, launch.blocks), folder)
