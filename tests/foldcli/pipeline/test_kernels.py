"""Tests of the compilation of kernels before a run's first target."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foldcli.inputs.complexes import Complex
from foldcli.pipeline import kernels
from foldcli.pipeline.first_searches import first_lengths, first_queries
from foldcli.pipeline.kernels import (
    KernelCompilation,
    compile_for_run,
    compile_search_ahead,
    start_process_ahead,
)
from foldcli.pipeline.target_order import in_run_order
from model.config import model_config
from model.kernel_request import CompilationStatus, KernelRequest
from msa.gpu.kernel_compiler import KernelCompiler
from msa.io.fasta import FastaRecord

Call = tuple[tuple[int, int], list[int], bool]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return the calls of the compiler, on a machine that seems to have one H200."""
    calls: list[Call] = []

    def compile_search(self: KernelCompiler, lengths: Iterable[int], many: bool = True) -> None:
        calls.append((self._device.capability, sorted(lengths), many))

    monkeypatch.setattr(KernelCompiler, "compile_search", compile_search)
    monkeypatch.setattr(
        kernels, "name_and_capability", lambda number: None if number else ("NVIDIA H200", (9, 0))
    )
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    return calls


def test_search_kernels_are_compiled_for_the_gpu_of_the_run(calls: list[Call]) -> None:
    compile_search_ahead("auto", {200, 100}).result()
    assert calls == [((9, 0), [100, 200], False)]


@pytest.mark.parametrize(
    "device, lengths", [("cpu", {100}), ("cuda:0,1", {100}), ("cuda:1", {100}), ("cuda:0", set())]
)
def test_no_search_kernels_are_compiled_in_vain(device: str, lengths: set[int], calls: list[Call]) -> None:
    compile_search_ahead(device, lengths).result()
    assert not calls


class Output:
    """Settings of results in a folder, with the files that tests look at."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def files(self, name: str) -> Any:
        return SimpleNamespace(
            path=lambda kind: self._folder / f"{name}.{kind}", search_folder=self._folder / f"{name}.search"
        )


def test_first_queries_are_those_of_the_first_batch_that_is_searched(tmp_path: Path) -> None:
    output: Any = Output(tmp_path)
    (tmp_path / "finished.done").touch()
    (tmp_path / "searched.search").touch()
    targets: list[tuple[str, Any]] = [
        (name, FastaRecord(name, sequence))
        for name, sequence in (
            ("finished", "ACDEFG"),
            ("short", "ACD"),
            ("searched", "ACDEF"),
            ("long", "ACDE"),
        )
    ]
    targets.append(("cached", SimpleNamespace(content=b">a\nAC\n")))
    assert [query.id for query in first_queries(in_run_order(targets), output)] == ["long", "short"]
    targets += [(f"{length}", FastaRecord(f"{length}", "A" * length)) for length in range(20, 30)]
    assert [len(query.sequence) for query in first_queries(in_run_order(targets), output)] == list(
        range(29, 21, -1)
    )
    pair = Complex("pair", (FastaRecord("a", "ACDEFG"), FastaRecord("b", "ACDEF")))
    assert first_queries(in_run_order([*targets, ("pair", pair)]), output) == [], (
        "chains of complexes come first"
    )


def test_kernels_are_compiled_for_the_first_batch_of_unfinished_targets(tmp_path: Path) -> None:
    output: Any = Output(tmp_path)
    (tmp_path / "finished.done").touch()
    cached: Any = SimpleNamespace(content=b">a\nAC\n")
    targets = [
        ("one", FastaRecord("one", "ACD")),
        ("finished", FastaRecord("finished", "ACDE")),
        ("pair", Complex("pair", (FastaRecord("a", "ACDEFG"), FastaRecord("b", "ACDEF")))),
        ("cached", cached),
    ]
    assert first_lengths(in_run_order(targets), output) == {3, 5, 6}
    targets += [(f"{length}", FastaRecord(f"{length}", "A" * length)) for length in range(20, 30)]
    assert first_lengths(in_run_order(targets), output) == set(range(22, 30)), "the longest eight"
    targets += [(f"{length}", FastaRecord(f"{length}", "A" * length)) for length in range(30, 50)]
    # three of the eight shortest are finished or have an alignment
    assert first_lengths(in_run_order(targets), output) >= {3, 5, 6, 20, 21, 22}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[str]"]:
    """Return the processes that compile kernels, which start on this machine as if it had a GPU."""
    pytest.importorskip("triton")
    started: list[subprocess.Popen[str]] = []
    start = kernels._start_process

    def start_process() -> "subprocess.Popen[str]":
        started.append(start())
        return started[-1]

    monkeypatch.setattr(kernels, "_start_process", start_process)
    monkeypatch.setattr(kernels, "has_nvidia_hardware", lambda: True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return started


def test_process_that_compiles_starts_before_the_request(
    started: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    start_process_ahead("auto", "fused")
    assert len(started) == 1
    request = KernelRequest("NVIDIA H200", (9, 0), (), "bf16", 1)
    compilation = KernelCompilation(request, [tmp_path / "marks" / "a"], lambda done, total: None)
    compilation.wait_for_short()
    assert compilation.wait() == CompilationStatus(short_done=True)
    assert len(started) == 1 and started[0].wait() == 0 and (tmp_path / "marks" / "a").exists()
    KernelCompilation(request, [], lambda done, total: None).wait()
    assert len(started) == 2, "each process compiles once"


def test_process_without_work_ends(
    started: list["subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process_ahead("auto", "auto")
    monkeypatch.setattr(kernels, "name_and_capability", lambda number: None)
    assert compile_for_run([model_config("model_1_ptm")], None, 0) is None
    assert started[0].wait(60) == 0


def test_no_process_starts_in_vain(
    started: list["subprocess.Popen[str]"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process_ahead("cpu", "auto")
    start_process_ahead("auto", "reference")
    monkeypatch.setattr(kernels, "has_nvidia_hardware", lambda: False)
    start_process_ahead("auto", "auto")
    monkeypatch.setattr(kernels, "has_nvidia_hardware", lambda: True)
    kernels._mark(model_config("model_1_ptm"), "bf16", "NVIDIA H200", (9, 0)).touch()
    start_process_ahead("auto", "auto")
    assert not started


def test_process_that_has_ended_is_an_error_of_the_compilation(
    started: list["subprocess.Popen[str]"],
) -> None:
    start_process_ahead("auto", "auto")
    started[0].kill()
    started[0].wait()
    request = KernelRequest("NVIDIA H200", (9, 0), (), "bf16", 1)
    compilation = KernelCompilation(request, [], lambda done, total: None)
    compilation.wait_for_short()
    assert compilation.wait().error == "exit code -9"
