"""Tests of the process that compiles the network's kernels."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from queue import SimpleQueue

import pytest

from model.alphafold2.modules.config import model_config
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.services.service import Service

pytest.importorskip("triton")

from cuda.fused.compilation import KernelVariant
from model.planning.kernel_process import _Progress, _SlowestFirst


class Workers:
    """Two workers whose compilations end when the test says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: dict[str, Future[bool]] = {}
        self.broken = False

    def submit(self, variant: KernelVariant) -> "Future[bool]":
        if self.broken:
            raise BrokenProcessPool
        self.started.append(variant.specialization)
        self.running[variant.specialization] = Future()
        return self.running[variant.specialization]


@pytest.fixture
def queued() -> tuple[Workers, _SlowestFirst, list[CompilationStatus]]:
    workers, reports = Workers(), list[CompilationStatus]()
    return workers, _SlowestFirst(workers.submit, 2, _Progress(reports.append)), reports


def put_all(queue: _SlowestFirst) -> None:
    for name, key in [("_mean", "a"), ("_gate", "b"), ("_output", "c"), ("attend_blocks", "d")]:
        queue.put(KernelVariant("m", name, key))


def test_slow_kernels_are_compiled_first(
    queued: tuple[Workers, _SlowestFirst, list[CompilationStatus]],
) -> None:
    workers, queue, reports = queued
    put_all(queue)
    assert workers.started == ["a", "b"]
    for key in "abdc":
        workers.running[key].set_result(key == "a")
    assert workers.started == ["a", "b", "d", "c"]
    assert reports[-1] == CompilationStatus(4, 4, 1, "")


def test_all_kernels_fail_after_a_crash_of_the_compiler(
    queued: tuple[Workers, _SlowestFirst, list[CompilationStatus]],
) -> None:
    workers, queue, reports = queued
    put_all(queue)
    workers.broken = True
    for key in "ab":
        workers.running[key].set_exception(BrokenProcessPool())
    assert reports[-1] == CompilationStatus(4, 4, 0, "the compiler has crashed")


@pytest.mark.slow
def test_process_ends_with_its_workers_when_nobody_waits_for_it(tmp_path: Path) -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_3_ptm"),), "bf16", 2)
    reported = SimpleQueue[CompilationStatus]()
    service = Service(
        "model.planning.kernel_process:Compiler",
        on_progress=reported.put, environment={"TRITON_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    compiled = service.request("compile", request)
    assert reported.get(timeout=120) == CompilationStatus(total=1)
    pid = service.process.pid
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(workers) >= 2
    service.close()
    assert service.process.returncode == 0 and compiled.exception() is not None
    assert not any(Path(f"/proc/{worker}/exe").exists() for worker in workers)
