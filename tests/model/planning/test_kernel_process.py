"""Tests of the process that compiles the network's kernels."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from model.alphafold2.modules.config import model_config
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.services.service import Service

pytest.importorskip("triton")

from model.planning.kernel_process import _Progress


class Workers:
    """Workers whose compilations end when the test says so."""

    def __init__(self) -> None:
        self.running: dict[str, Future[bool]] = {}
        self.broken = False

    def submit(self, key: str) -> "Future[bool]":
        if self.broken:
            raise BrokenProcessPool
        return self.running.setdefault(key, Future())


def followed(workers: Workers) -> tuple[_Progress, list[CompilationStatus]]:
    reports = list[CompilationStatus]()
    progress = _Progress(reports.append)
    for key in "abcd":
        progress.follow(partial(workers.submit, key))
    return progress, reports


def test_progress_counts_finished_and_compiled_kernels() -> None:
    workers = Workers()
    progress, reports = followed(workers)
    for key in "abdc":
        workers.running[key].set_result(key == "a")
    progress.wait()
    assert reports[-1] == CompilationStatus(4, 4, 1, "")


def test_all_kernels_fail_after_a_crash_of_the_compiler() -> None:
    workers = Workers()
    progress, reports = followed(workers)
    workers.broken = True
    progress.follow(partial(workers.submit, "e"))
    for key in "abcd":
        workers.running[key].set_exception(BrokenProcessPool())
    progress.wait()
    assert reports[-1] == CompilationStatus(5, 5, 0, "the compiler has crashed")


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
