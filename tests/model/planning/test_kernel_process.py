"""Tests of the process that compiles the network's kernels."""

import json
import os
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

import pytest

from model.alphafold2.modules.config import model_config
from model.planning.kernel_request import CompilationStatus, KernelRequest

pytest.importorskip("triton")

from cuda.fused.compilation import KernelVariant
from model.planning.kernel_process import _Progress, _SlowestFirst


def test_requests_survive_the_pipe() -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_3_ptm"),), "bf16", 2)
    assert KernelRequest.from_json(request.to_json()) == request


def test_process_without_a_request_ends_quietly() -> None:
    command = [sys.executable, "-m", "model.planning.kernel_process"]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


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
def queued() -> tuple[Workers, _SlowestFirst]:
    workers = Workers()
    return workers, _SlowestFirst(workers.submit, 2, _Progress())


def last_status(capsys: pytest.CaptureFixture[str]) -> CompilationStatus:
    return CompilationStatus(**json.loads(capsys.readouterr().out.splitlines()[-1]))


def put_all(queue: _SlowestFirst) -> None:
    for name, key in [("_mean", "a"), ("_gate", "b"), ("_output", "c"), ("attend_blocks", "d")]:
        queue.put(KernelVariant("m", name, key))


def test_slow_kernels_are_compiled_first(
    queued: tuple[Workers, _SlowestFirst], capsys: pytest.CaptureFixture[str]
) -> None:
    workers, queue = queued
    put_all(queue)
    assert workers.started == ["a", "b"]
    for key in "abdc":
        workers.running[key].set_result(key == "a")
    assert workers.started == ["a", "b", "d", "c"]
    assert last_status(capsys) == CompilationStatus(4, 4, 1, "")


def test_all_kernels_fail_after_a_crash_of_the_compiler(
    queued: tuple[Workers, _SlowestFirst], capsys: pytest.CaptureFixture[str]
) -> None:
    workers, queue = queued
    put_all(queue)
    workers.broken = True
    for key in "ab":
        workers.running[key].set_exception(BrokenProcessPool())
    assert last_status(capsys) == CompilationStatus(4, 4, 0, "the compiler has crashed")


@pytest.mark.slow
def test_process_ends_with_its_workers_when_nobody_reads_its_status(tmp_path: Path) -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_3_ptm"),), "bf16", 2)
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "model.planning.kernel_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{request.to_json()}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == asdict(CompilationStatus(total=1))
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(workers) >= 2
        process.stdout.close()
        process.wait(timeout=120)
    assert not any(Path(f"/proc/{worker}/exe").exists() for worker in workers)
