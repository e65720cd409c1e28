"""Tests of the compilation of kernels before a run's first target."""

import signal
from pathlib import Path
from typing import Any

import pytest

from foldcli.pipeline.network import kernels
from foldcli.pipeline.network.kernels import KernelCompilation, compile_for_run
from model.alphafold2.modules.config import model_config
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.services.service import Service


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    """Return the processes that compile kernels, which start on this machine as if it had a GPU."""
    pytest.importorskip("triton")
    started: list[Service] = []

    def start(*arguments: Any, **options: Any) -> Service:
        started.append(Service(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(kernels, "Service", start)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return started


@pytest.mark.slow
def test_each_process_compiles_once(started: list[Service], tmp_path: Path) -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (), "bf16", 1)
    compilation = KernelCompilation(request, [tmp_path / "marks" / "a"], lambda done, total: None)
    assert compilation.wait() == CompilationStatus()
    assert len(started) == 1 and started[0].process.wait() == 0 and (tmp_path / "marks" / "a").exists()
    KernelCompilation(request, [], lambda done, total: None).wait()
    assert len(started) == 2


def test_no_process_starts_in_vain(started: list[Service], monkeypatch: pytest.MonkeyPatch) -> None:
    config = model_config("model_1_ptm")
    monkeypatch.setattr(kernels, "name_and_capability", lambda number: None)
    assert compile_for_run([config], None, 0) is None
    monkeypatch.setattr(kernels, "name_and_capability", lambda number: ("NVIDIA H200", (9, 0)))
    kernels._mark(config, "bf16", "NVIDIA H200", (9, 0)).touch()
    assert compile_for_run([config], None, 0) is None
    assert not started


@pytest.mark.parametrize(("sent", "silence"), [(signal.SIGSTOP, 0.2), (signal.SIGKILL, 600.0)])
def test_compiler_that_hangs_or_has_ended_is_an_error_of_the_compilation(
    sent: signal.Signals, silence: float, started: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_MAX_SILENCE", silence)
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_1_ptm"),), "bf16", 1)
    compilation = KernelCompilation(request, [], lambda done, total: None)
    started[0].process.send_signal(sent)
    assert compilation.wait().error == "its process was killed by SIGKILL"
