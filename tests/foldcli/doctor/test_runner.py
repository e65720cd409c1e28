"""A check that takes the interpreter down, hangs or raises anything is broken, and the others are made."""

from pathlib import Path

import pytest

from foldcli.doctor.outcome import Context, Outcome, Status
from foldcli.doctor.runner import run_checks

CPU = Context("cpu", Path("/nowhere"))


def run(*names: str, context: Context = CPU, seconds: float = 120) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in run_checks(names, context, seconds, lambda name: None)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
         "ended by SIGSEGV: last words"),
        ("import os\nos._exit(3)", "ended with exit status 3"),
        ("raise SystemExit('enough')", "SystemExit: enough"),
        ("raise ImportError('libx.so.1: no such file\\nmore')", "ImportError: libx.so.1: no such file"),
        ("raise MemoryError", "MemoryError"),
    ],
)  # fmt: skip
def test_a_package_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    (tmp_path / "gemmi.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    found = run("zstandard", "gemmi", "machine")
    assert list(found) == ["zstandard", "gemmi", "machine"]
    assert found["gemmi"].status is Status.BROKEN and found["gemmi"].found == said
    assert found["gemmi"].remedy.startswith("pip install --force-reinstall 'gemmi")
    assert found["zstandard"].status is found["machine"].status is Status.OK


def test_a_package_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gemmi.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("gemmi", seconds=1)["gemmi"].found == "no answer for 1 s"


def test_a_process_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise ImportError('not json')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run("machine", "Python")
    assert [outcome.status for outcome in found.values()] == [Status.BROKEN] * 2
    assert found["machine"].found == "ended with exit status 1: ImportError: not json"


def test_every_check_is_known() -> None:
    found = run("no such check")["no such check"]
    assert found.status is Status.BROKEN


def test_the_search_on_a_gpu_in_numbas_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    found = run("GPU", "search on the GPU", context=Context("cuda", Path("/nowhere")))
    assert "simulator" in found["GPU 0 for the search"].found
    assert found["search on GPU 0"].found == "compiled, and equal to the CPU's hits"
