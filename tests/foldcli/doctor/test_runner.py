"""A check that crashes, hangs or raises anything is broken, and the other checks still run."""

from pathlib import Path

import pytest

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus
from foldcli.doctor.runner import run_checks
from tests.conftest import simulate_gpus

CPU = CheckContext("cpu", Path("/nowhere"))


def run(*names: str, context: CheckContext = CPU, time_limit: float = 120) -> dict[str, CheckResult]:
    return {result.name: result for result in run_checks(names, context, time_limit, lambda name: None)}


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ("import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
         "ended by SIGSEGV: last words"),
        ("import os\nos._exit(3)", "ended with exit status 3"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("raise ImportError('libx.so.1: no such file\\nmore')", "ImportError: libx.so.1: no such file"),
        ("raise MemoryError", "MemoryError"),
    ],
)  # fmt: skip
def test_package_that_fails_to_import_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, finding: str
) -> None:
    (tmp_path / "gemmi.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    results = run("zstandard", "gemmi", "machine")
    assert list(results) == ["zstandard", "gemmi", "machine"]
    assert results["gemmi"].status is CheckStatus.BROKEN and results["gemmi"].finding == finding
    assert results["gemmi"].remedy.startswith("pip install --force-reinstall 'gemmi")
    assert results["zstandard"].status is results["machine"].status is CheckStatus.OK


def test_package_that_hangs_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gemmi.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("gemmi", time_limit=1)["gemmi"].finding == "no answer for 1 s"


def test_time_limit_is_that_of_a_single_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gemmi", "zstandard"):
        (tmp_path / f"{name}.py").write_text("import time; time.sleep(3)")
    monkeypatch.syspath_prepend(tmp_path)
    results = run("gemmi", "zstandard", time_limit=5)
    assert [result.status for result in results.values()] == [CheckStatus.OK] * 2


def test_child_process_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise ImportError('not json')")
    monkeypatch.syspath_prepend(tmp_path)
    results = run("machine", "Python")
    assert [result.status for result in results.values()] == [CheckStatus.BROKEN] * 2
    assert results["machine"].finding == "ended with exit status 1: ImportError: not json"


def test_unknown_check_is_broken() -> None:
    result = run("no such check")["no such check"]
    assert result.status is CheckStatus.BROKEN


@pytest.mark.slow
def test_gpu_search_in_numbas_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    results = run("GPU", "search on the GPU", context=CheckContext("cuda", Path("/nowhere")))
    assert "simulator" in results["GPU 0 for the search"].finding
    assert results["search on GPU 0"].finding == "compiled, and equal to the CPU's hits"
