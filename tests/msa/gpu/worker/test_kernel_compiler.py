"""Tests of the processes that compile the search's kernels."""

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from cuda.alignment import device as gpu_device
from cuda.alignment.device import Device
from cuda.alignment.gapless.launch_table import border_launch, choose_launch
from cuda.alignment.gapless.signatures import RESCORE_LISTED
from cuda.alignment.kernel_cache import KernelSource
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import Gpu, GpuUnavailable, find_gpu
from msa.gpu.worker import kernel_compiler, local_worker
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.kernel_compiler import KernelCompiler, _Job, _run_job, alignment_kernels, filter_kernels
from msa.gpu.worker.local_worker import LocalWorker
from tests.conftest import simulate_gpus

H200 = Device.of_architecture("NVIDIA H200", (9, 0))


def job(folder: Path, device: Device = H200) -> _Job:
    return _Job(device, folder, "filter", (200,))


def test_processes_report_each_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch)
    assert list(_run_job(job(tmp_path), [0, 2, 1], 2)) == [1, 2, 3]


@pytest.mark.slow
def test_processes_that_fail_leave_their_kernels(tmp_path: Path) -> None:
    assert list(_run_job(job(tmp_path), [99], 1)) == []


@pytest.mark.compile
@pytest.mark.skipif(not list(metadata.Distribution.discover(name="nvidia-nvjitlink")), reason="no linker")
def test_kernels_are_compiled_without_a_gpu(tmp_path: Path) -> None:
    assert list(_run_job(job(tmp_path), [1, 4], 2)) == [1, 2]
    kernels = list(tmp_path.glob("*_sm90_*.cubin"))
    assert {path.name.split("_sm90_")[0] for path in kernels} == {"list_bounds", "rescore_listed"}
    for path in kernels:
        name, _, code = path.read_bytes().partition(b"\n")
        assert code.startswith(b"\x7fELF") and name in code


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> set[KernelSource]:
    """Return the compiled kernels; compilation only adds to them."""
    kernels: set[KernelSource] = set()
    monkeypatch.setattr(kernel_compiler, "is_cached", lambda kernel, capability, folder: kernel in kernels)
    monkeypatch.setattr(
        kernel_compiler, "compile_into", lambda folder, kernel, capability: kernels.add(kernel)
    )
    monkeypatch.setattr(kernel_compiler, "MAX_PROCESSES", 0)
    return kernels


def test_kernels_of_all_stages_are_compiled_together(tmp_path: Path, cached: set[KernelSource]) -> None:
    KernelCompiler(tmp_path, lambda done, needed: None, device=H200).compile_search([200, 100])
    # found by another process
    other = KernelCompiler(tmp_path, lambda done, needed: None, device=H200)
    for stage in ("filter", "alignment", "many alignments"):
        assert other._incomplete_lengths(stage, [200, 100]) == []
        assert other._incomplete_lengths(stage, [900, 100]) == [900]
    cached.clear()
    assert other._incomplete_lengths("filter", [100]) == []
    assert other._incomplete_lengths("filter", [101]) == [101]


def test_few_kernels_are_compiled_in_another_process_only_if_no_search_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_gpus(monkeypatch)
    compiler = KernelCompiler(tmp_path, lambda done, needed: None, device=H200)
    for stage in ("filter", "all"):
        assert list(compiler._compile_in_processes(stage, [200], [0])) == []
    assert list(compiler._compile_in_processes("many alignments", [200], [0])) == [1]
    assert list(compiler._compile_in_processes("many alignments", [200], [])) == []


@pytest.mark.parametrize("length", [50, 300, 3000])
def test_all_kernels_that_queries_may_need_are_announced(tmp_path: Path, length: int) -> None:
    kernels = {
        kernel.identity: kernel.launch_bounds
        for kernel in (
            *filter_kernels([length], tmp_path, H200),
            *alignment_kernels([length], tmp_path, H200, many=True),
        )
    }
    assert RESCORE_LISTED.identity in kernels
    for kind, lanes in (("packed", None), ("traced", 32), ("wide", 32)):
        shapes = [name for name in kernels if name.startswith(f"gotoh_{kind}")]
        assert shapes and (lanes is None or all(f"_{lanes}x" in name for name in shapes))
    # tiles of a long query have fewer threads
    bounds = [name for name in kernels if name.startswith(("gapless_bounds", "gapless_bordered"))]
    launch = choose_launch(min(length, 1500), H200.name, H200.shared_bytes)
    assert launch is not None and len(bounds) == 1
    expected = launch if length < 3000 else border_launch(launch)
    assert kernels[bounds[0]] == (expected.threads, expected.blocks)


def test_searches_do_not_wait_for_the_kernels_for_many_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    calls: list[tuple[list[int], bool | str]] = []

    def compile_search(self: KernelCompiler, lengths: list[int], many: bool = True) -> None:
        calls.append((lengths, many))

    def compile_stage(self: KernelCompiler, stage: str, lengths: list[int]) -> None:
        assert stage == kernel_compiler.MANY_ALIGNMENTS
        calls.append((lengths, True))
        begun.set()
        assert may_end.wait(60)
        ended.set()

    monkeypatch.setattr(KernelCompiler, "compile_search", compile_search)
    monkeypatch.setattr(KernelCompiler, "compile_stage", compile_stage)
    monkeypatch.setattr(KernelCompiler, "load", lambda self, lengths: calls.append((lengths, "loaded")))
    monkeypatch.setattr(gpu_device, "select_device", lambda number: None)
    gpu = Gpu(0, "NVIDIA H200", (9, 0), (13, 0), (13, 0), 2**30, 2**30)
    worker = LocalWorker(gpu, GpuSettings(tmp_path))
    worker.prepare([300], many_pairs=False).result(60)
    worker.prepare([100, 200], many_pairs=True).result(60)
    assert begun.wait(60) and not ended.is_set()
    worker.close()
    may_end.set()
    assert ended.wait(60)
    several = [100, 200]
    assert calls[:2] == [([300], False), ([300], "loaded")]
    assert calls[2:] == [(several, False), (several, "loaded"), (several, True)]


def test_all_compiled_kernels_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: set[KernelSource]
) -> None:
    loaded: list[KernelSource] = []
    monkeypatch.setattr(kernel_compiler, "compiled_kernel", loaded.append)
    compiler, device = KernelCompiler(tmp_path, lambda done, needed: None, device=H200), H200
    for many in (False, True):
        if many:
            compiler.compile_stage(kernel_compiler.MANY_ALIGNMENTS, [100, 300])
        else:
            compiler.compile_search([100, 300], many=False)
        compiler.load([300])
        expected = {
            *alignment_kernels([300], tmp_path, device, many),
            *filter_kernels([300], tmp_path, device),
        }
        assert set(loaded) == expected and len(loaded) == len(expected)
        loaded.clear()


def test_filter_waits_for_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filters: list[object] = []

    class Database:
        def start(self) -> None:
            pass

    class Filter:
        def __init__(self, allocate: Any) -> None:
            filters.append(self)

    monkeypatch.setattr(gpu_device, "select_device", lambda number: None)
    monkeypatch.setattr(local_worker, "BatchFilter", Filter)
    gpu = Gpu(0, "NVIDIA H200", (9, 0), (13, 0), (13, 0), 2**30, 2**30)
    worker = LocalWorker(gpu, GpuSettings(tmp_path))
    worker._database = Database()  # type: ignore[assignment]
    compiled: Future[None] = Future()
    worker._targets = SequenceArrays.concatenate([])
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        queued = threads.submit(
            worker._queue_filter, 1, compiled, Future(), SearchSettings(), False, cancelled
        )
        time.sleep(0.05)
        assert not filters
        compiled.set_result(None)
        queued.result(60)
    assert len(filters) == 1


@pytest.mark.simulator
def test_compilations_for_the_same_searches_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling, stages = threading.Lock(), []

    def compile_stage(self: KernelCompiler, stage: str, lengths: list[int]) -> None:
        assert compiling.acquire(blocking=False), "two compilations at the same time"
        time.sleep(0.05)
        stages.append(stage)
        compiling.release()

    monkeypatch.setattr(KernelCompiler, "compile_stage", compile_stage)
    compilers = [KernelCompiler(tmp_path, lambda done, needed: None) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        for call in [threads.submit(compiler.compile_search, [100], many=False) for compiler in compilers]:
            call.result()
    assert len(stages) == 3


@pytest.mark.gpu
def test_kernels_are_compiled_in_processes_once(tmp_path: Path) -> None:
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        pytest.skip("the simulator compiles nothing")
    try:
        find_gpu()
    except GpuUnavailable as error:
        pytest.skip(error.reason)
    reports: list[list[tuple[int, int]]] = [[], []]
    for seen in reports:
        compiler = KernelCompiler(tmp_path, lambda done, needed, seen=seen: seen.append((done, needed)))
        compiler.compile_stage(kernel_compiler.FILTER, [100, 200])
    needed = len(list(tmp_path.glob("*.cubin")))
    assert reports[0][0] == (0, needed) and reports[0][-1] == (needed, needed) and not reports[1]
