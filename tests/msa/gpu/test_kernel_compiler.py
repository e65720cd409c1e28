"""Tests of the processes that compile the search's kernels."""

import json
from pathlib import Path

import pytest

from cuda.alignment.device import SIMULATED
from msa.gpu.devices import GpuUnavailable, find_gpu
from msa.gpu.kernel_compiler import KernelCompiler, _Job, _run_jobs


def jobs(folder: Path) -> list[_Job]:
    return [_Job(0, str(folder), "filter", (200,), indices) for indices in ((0, 2), (1,))]


def test_processes_report_each_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert list(_run_jobs(jobs(tmp_path))) == [1, 2, 3]


def test_processes_without_a_gpu_end_without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert list(_run_jobs(jobs(tmp_path))) == []


@pytest.mark.simulator
def test_kernels_of_all_stages_are_compiled_together(tmp_path: Path) -> None:
    KernelCompiler(tmp_path, lambda done, needed: None).compile_search([200, 100])
    (path,) = tmp_path.glob("made_*.json")
    stages = json.loads(path.read_text())
    assert len(stages) == 3 and all(lengths == [100, 200] for lengths in stages.values())


@pytest.mark.gpu
def test_kernels_are_compiled_in_processes_once(tmp_path: Path) -> None:
    if SIMULATED:
        pytest.skip("the simulator compiles nothing")
    try:
        find_gpu()
    except GpuUnavailable as error:
        pytest.skip(error.reason)
    reports: list[list[tuple[int, int]]] = [[], []]
    for seen in reports:
        compiler = KernelCompiler(tmp_path, lambda done, needed, seen=seen: seen.append((done, needed)))
        compiler.compile_filter([100, 200])
    needed = len(list(tmp_path.glob("*.cubin")))
    assert reports[0][0] == (0, needed) and reports[0][-1] == (needed, needed) and not reports[1]
