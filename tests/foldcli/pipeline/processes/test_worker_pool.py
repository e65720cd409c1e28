"""Tests of the workers of a run: independent items, messages, and clean ends."""

import importlib
import logging
import os
import signal
from pathlib import Path

import pytest

from foldcli.logs import logger
from foldcli.pipeline.processes.worker_pool import map_in_processes
from msa.base.services.requests import RemoteTraceback

KILLED = "__import__('os').kill(__import__('os').getpid(), 9)"
WARNED = "__import__('foldcli.logs').logs.logger.warning('of %s', 'three')"


def test_dead_worker_fails_only_its_own_item() -> None:
    items = ["1 + 1", "1 / 0", KILLED, "2 + 2", "3 + 3"]
    results = sorted(map_in_processes(eval, items, 2), key=lambda result: result.index)
    assert [result.item for result in results] == items
    assert [result.value for result in results] == [2, None, None, 4, 6]
    with pytest.raises(ZeroDivisionError) as divided:
        results[1].get()
    assert isinstance(divided.value.__cause__, RemoteTraceback) and "line 1" in str(divided.value.__cause__)
    with pytest.raises(ChildProcessError, match="killed by SIGKILL"):
        results[2].get()


def test_messages_of_a_worker_are_logged_with_its_result(caplog: pytest.LogCaptureFixture) -> None:
    logger.propagate = True
    assert [result.get() for result in map_in_processes(eval, [WARNED, "1"], 1)] == [None, 1]
    assert caplog.record_tuples == [("foldcli", logging.WARNING, "of three")]


def test_workers_end_without_the_cleanup_of_python(tmp_path: Path) -> None:
    mark = tmp_path / "cleaned"
    registering = f"import atexit, pathlib; atexit.register(pathlib.Path({str(mark)!r}).touch)"
    (result,) = map_in_processes(exec, [registering], 1)
    # `map_in_processes` has waited for the end of the process
    assert result.get() is None and not mark.exists()


def test_exit_code_of_a_worker_is_reported() -> None:
    (result,) = map_in_processes(exec, ["raise SystemExit(3)"], 1)
    with pytest.raises(ChildProcessError, match="exit code 3"):
        result.get()


def test_workers_have_one_thread_and_ignore_interrupts() -> None:
    environ = "__import__('os').environ['OMP_NUM_THREADS']"
    handler = "__import__('signal').getsignal(__import__('signal').SIGINT) == 1"
    values = {result.value for result in map_in_processes(eval, [environ, handler], 1)}
    assert signal.SIG_IGN == 1 and values == {"1", True}


def test_thread_counts_are_set_before_the_functions_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numpy and numba read the thread counts when they are imported."""
    (tmp_path / "reads_threads.py").write_text(
        "import os\nTHREADS = os.environ.get('OMP_NUM_THREADS')\ndef threads(item): return THREADS\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    module = importlib.import_module("reads_threads")
    assert [result.value for result in map_in_processes(module.threads, [0], 1)] == ["1"]


def test_busy_workers_end_and_remove_temporary_files(tmp_path: Path) -> None:
    ready, never = tmp_path / "ready", tmp_path / "never"
    os.mkfifo(ready)
    os.mkfifo(never)
    blocked = (
        "def f():\n"
        " from msa.base.atomic import atomic_write\n"
        f" with atomic_write({str(tmp_path / 'out' / 'file')!r}) as stream:\n"
        "  stream.write('half')\n"
        f"  open({str(ready)!r}, 'w').close()\n"
        f"  open({str(never)!r}).read()\n"
        "f()"
    )
    results = map_in_processes(exec, ["pass", blocked], 2)
    assert next(results).index == 0
    ready.read_text()  # opens when the second worker has begun to write
    assert list((tmp_path / "out").iterdir())
    results.close()  # type: ignore[attr-defined]
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(OSError, match="No such device"):
        os.open(never, os.O_WRONLY | os.O_NONBLOCK)  # no process has it open for reading
