"""Tests of the worker pool: independent items, log messages, and clean ends."""

import functools
import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import foldcli
from foldcli.logs import logger
from foldcli.pipeline.processes.worker_pool import (
    CallInterrupted,
    RemoteTraceback,
    Unfinished,
    WorkerPool,
    map_in_processes,
)
from msa.base.temporary_names import start_time

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


def test_worker_that_cannot_be_started_fails_its_calls() -> None:
    code = (
        "import os, resource\n"
        "from foldcli.pipeline.processes.worker_pool import WorkerPool\n"
        "pool = WorkerPool(1, os.getpid)\n"
        "open_files, limit = len(os.listdir('/proc/self/fd')), resource.RLIMIT_NOFILE\n"
        "resource.setrlimit(limit, (open_files, resource.getrlimit(limit)[1]))\n"
        "print(type(pool.submit(abs, -1).exception(timeout=20)).__name__, flush=True)\n"
        "os._exit(0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("OSError\n", "")


def test_error_that_cannot_be_pickled_keeps_its_message() -> None:
    constructor = "class Odd(Exception):\n def __init__(self, a, b): super().__init__(a + b)"
    (result,) = map_in_processes(exec, [f"{constructor}\nraise Odd('no ', 'GPU')"], 1)
    with pytest.raises(RuntimeError, match="Odd: no GPU"):
        result.get()


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


def test_pool_calls_functions_in_warmed_up_workers() -> None:
    pool = WorkerPool(2, functools.partial(exec, "import os; os.environ['WARMED_UP'] = 'yes'"))
    futures = [pool.submit(os.getenv, "WARMED_UP") for _ in range(5)]
    died = pool.submit(eval, KILLED)
    with pytest.raises(ChildProcessError, match="killed by SIGKILL"):
        died.result()
    # the replacement of the dead worker is warmed up too
    futures += [pool.submit(os.getenv, "WARMED_UP") for _ in range(5)]
    assert {future.result() for future in futures} == {"yes"}
    pool.close()


def unfinished(code: str) -> Unfinished[object]:
    """Return code whose value is collected later."""
    return Unfinished(functools.partial(eval, code))


def test_next_call_is_made_while_the_last_result_is_collected(tmp_path: Path) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    pool = WorkerPool(1)
    # the result is ready when the next call has opened the other end
    first = pool.call(unfinished, f"open({str(gate)!r}).read()")
    assert first.started.result(20) is None
    assert pool.submit(eval, f"open({str(gate)!r}, 'w').write('next')").result(20) == 4
    assert first.result.result(20) == "next"
    failed = pool.call(unfinished, "1 / 0")
    failed.started.result(20)
    with pytest.raises(ZeroDivisionError):
        failed.result.result(20)
    pool.close()


def test_dead_worker_fails_the_last_call_and_interrupts_the_one_before() -> None:
    pool = WorkerPool(1)
    first = pool.call(unfinished, "__import__('time').sleep(60)")
    second, third = pool.call(eval, KILLED), pool.call(eval, "1 + 1")
    for future in (second.started, second.result):
        error = future.exception(20)
        assert isinstance(error, ChildProcessError) and not isinstance(error, CallInterrupted)
    with pytest.raises(CallInterrupted, match="killed by SIGKILL"):
        first.result.result(20)
    # made by a new worker
    assert third.result.result(20) == 2
    pool.close()


def test_started_workers_warm_up_without_calls(tmp_path: Path) -> None:
    marks = [tmp_path / "first", tmp_path / "second"]
    pool = WorkerPool(1, functools.partial(os.mkdir, str(marks[0])))
    for _ in range(2):
        pool.start()
    deadline = time.monotonic() + 20
    while not marks[0].exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pool.terminate()
    # a pool that has ended starts no workers
    ended = WorkerPool(1, functools.partial(os.mkdir, str(marks[1])))
    ended.terminate()
    ended.start()
    ended.close()
    assert not marks[1].exists()


def start_main(script: Path) -> "subprocess.Popen[str]":
    """Start a script, as a user would, whose process starts workers."""
    environment = os.environ | {"PYTHONPATH": str(Path(foldcli.__file__).parents[1])}
    command = [sys.executable, str(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def wait_until_ended(pid: int) -> None:
    """Wait until a process that is no child of this one has ended."""
    deadline = time.monotonic() + 20
    while start_time(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_workers_end_when_the_main_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sys, time, os\n"
        "from foldcli.pipeline.processes.worker_pool import WorkerPool\n"
        "if __name__ == '__main__':\n"
        "    pool = WorkerPool(1)\n"
        "    print(pool.submit(eval, '__import__(\"os\").getpid()').result(), flush=True)\n"
        "    pool.submit(eval, '__import__(\"time\").sleep(600)')\n"
        "    time.sleep(600)\n"
    )
    main = start_main(tmp_path / "main.py")
    assert main.stdout is not None
    worker = int(main.stdout.readline())
    main.kill()
    main.wait()
    wait_until_ended(worker)


def test_worker_that_starts_after_its_main_process_was_killed_does_nothing(tmp_path: Path) -> None:
    started, go_on, written = (tmp_path / name for name in ("started", "go_on", "written"))
    os.mkfifo(started)
    os.mkfifo(go_on)
    # a worker imports this file before it does anything else
    (tmp_path / "main.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from foldcli.pipeline.processes.worker_pool import WorkerPool\n"
        "if __name__ == '__main__':\n"
        f"    WorkerPool(1).submit(os.mkdir, {str(written)!r})\n"
        "    time.sleep(600)\n"
        f"Path({str(started)!r}).write_text(str(os.getpid()))\n"
        f"Path({str(go_on)!r}).read_text()\n"
    )
    main = start_main(tmp_path / "main.py")
    worker = int(started.read_text())
    main.kill()
    main.wait()
    go_on.write_text("")
    wait_until_ended(worker)
    assert not written.exists()
