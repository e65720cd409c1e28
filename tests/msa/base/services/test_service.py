"""Services: answers, streams, messages, errors, and all ways in which their processes end."""

import gc
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msa
from msa.base.errors import InputError
from msa.base.services import service as service_module
from msa.base.services.pool import CALLS, ServicePool
from msa.base.services.requests import RemoteTraceback
from msa.base.services.service import Service, ServiceEnded
from tests.msa.base.services import handlers

ENTRY = f"{handlers.__name__}:Handler"
KILLED = "__import__('os').kill(__import__('os').getpid(), 9)"

Start = Callable[..., Service]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts services, which end with the test."""
    started: list[Service] = []

    def start_service(*arguments: Any, **options: Any) -> Service:
        started.append(Service(ENTRY, *arguments, **options))
        return started[-1]

    yield start_service
    for each in started:
        each.kill()


def has_ended(pid: int, seconds: float = 60) -> bool:
    """Return whether a process, of any parent, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor):
        return bool(select.select([descriptor], [], [], seconds)[0])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_values_arrive_unchanged(start: Start) -> None:
    service = start("entry", 7)
    large = np.arange(10_000_000, dtype=np.int32)
    answer = service.request("echo", {"large": large, "none": None})
    assert service.request("given").result(60) == ("entry", 7)
    value = answer.result(60)
    assert np.array_equal(value["large"], large) and value["large"].flags.writeable
    assert service.request("echo", b"").result(60) == b""


def test_requests_overlap_and_are_answered_in_any_order(start: Start) -> None:
    service = start()
    first, failing = service.request("wait_for_gate"), service.request("fail_later")
    assert service.request("echo", 1).result(60) == 1 and not first.done()
    # nobody can cancel what the process works on
    assert not first.cancel()
    service.request("open_gate", "open").result(60)
    assert first.result(60) == "open"
    with pytest.raises(InputError, match=r"a\.fasta:3: later"):
        failing.result(60)


def test_errors_keep_their_type_and_traceback(start: Start) -> None:
    service = start()
    with pytest.raises(InputError) as caught:
        service.request("fail", "input").result(60)
    assert (caught.value.path, caught.value.line, caught.value.reason) == ("q.fasta", 7, "too short")
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback) and "handlers.py" in str(cause)
    with pytest.raises(RuntimeError, match="Odd: no GPU"):
        service.request("fail", "odd").result(60)
    with pytest.raises(Exception, match=r"pickle|local object"):
        service.request("unpicklable").result(60)
    with pytest.raises(AttributeError, match="missing_method"):
        service.request("missing_method").result(60)
    # an argument that cannot be sent fails here, and the process goes on
    with pytest.raises(Exception, match=r"pickle|local object"):
        service.request("echo", lambda: None)
    assert service.request("echo", 2).result(60) == 2


class OnlyThere:
    """A value that comes back from another process as one that this process cannot unpickle."""

    def __init__(self, owner: int = 0) -> None:
        self.owner = owner or os.getpid()

    def __reduce__(self) -> Any:
        return _rebuild, (self.owner, os.getpid() != self.owner)


def _rebuild(owner: int, comes_back: bool) -> OnlyThere:
    if comes_back:
        raise ValueError("not here")
    return OnlyThere(owner)


def test_answer_that_cannot_be_read_fails_alone(start: Start) -> None:
    service = start()
    with pytest.raises(ValueError, match="not here"):
        service.request("echo", OnlyThere()).result(60)
    assert service.request("echo", 3).result(60) == 3


def test_items_of_a_stream_arrive_with_progress(start: Start) -> None:
    service, steps = start(), list[tuple[int, int]]()
    stream = service.stream("count", 5, progress=lambda *values: steps.append(values))
    assert list(stream) == [0, 1, 2, 3, 4]
    assert steps == [(number, 5) for number in range(5)]
    items = []
    with pytest.raises(InputError, match="three"):
        for item in service.stream("count", 3):
            items.append(item)
    assert items == [0, 1, 2]


def test_stream_that_is_given_up_ends_and_the_next_one_works(start: Start, tmp_path: Path) -> None:
    service, mark = start(), tmp_path / "closed"
    stream = service.stream("count", 10**9, str(mark))
    assert next(stream) == 0
    waiting = service.stream("count", 10**9)
    waiting.close()
    stream.close()
    assert list(service.stream("count", 2)) == [0, 1]
    assert mark.exists() and list(stream) == []


def test_stream_that_is_given_up_after_its_end_is_forgotten(start: Start) -> None:
    service = start()
    before = service.request("unfinished_requests").result(60)
    stream = service.stream("count", 1)
    assert next(stream) == 0
    # answered after the stream has ended, which this end has not noticed yet
    service.request("echo", 0).result(60)
    stream.close()
    assert service.request("unfinished_requests").result(60) == before


def test_silence_of_a_process_is_noticed(start: Start) -> None:
    service = start()
    stream = service.stream("count", 2)
    assert stream.next(60) == 0
    service.request("pid").result(60)
    assert stream.next(60) == 1
    os.kill(service.process.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        service.stream("count", 2).next(0.2)


def test_messages_and_progress_are_relayed(start: Start) -> None:
    logger, records, reports = logging.Logger("test of services", logging.INFO), [], []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment]
    logger.addHandler(handler)
    service = start(logger=logger, on_progress=lambda *values: reports.append(values))
    service.request("log").result(60)
    # they arrive before the answer
    assert [(each.levelno, each.getMessage(), each.__dict__["fields"]) for each in records] == [
        (logging.WARNING, "3 kernels", {"kernels": 3})
    ]
    service.request("report").result(60)
    assert reports == [("compiled", 1, 2)]


def test_process_gets_variables_files_and_output(start: Start, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "output").open("w+b") as output:
        service = start(environment={"OMP_NUM_THREADS": "1"}, pass_fds=[writing], output=output)
        assert service.request("environment", "OMP_NUM_THREADS").result(60) == "1"
        service.close()
    os.close(writing)
    os.close(reading)


def test_start_imports_nothing_heavy() -> None:
    service = Service(CALLS)
    heavy = "[name for name in ('numpy', 'torch', 'numba', 'foldcli') if name in __import__('sys').modules]"
    assert service.request("call", eval, heavy).result(60) == []
    service.close()


def test_end_of_the_process_fails_pending_and_later_requests(start: Start) -> None:
    service = start()
    waiting, stream = service.request("wait_for_gate"), service.stream("count", 10**9)
    next(stream)
    service.process.kill()
    for number in range(2):
        with pytest.raises(ServiceEnded, match="its process was killed by SIGKILL") as caught:
            (waiting, service.request("echo", 1))[number].result(60)
        assert caught.value.exit_code == -signal.SIGKILL and isinstance(caught.value, ChildProcessError)
    with pytest.raises(ServiceEnded):
        list(stream)
    assert service.has_ended


def test_exit_code_is_reported(start: Start) -> None:
    with pytest.raises(ServiceEnded, match="its process ended with exit code 3"):
        start().request("fail", "exit").result(60)
    service = start(ended=lambda code: MemoryError(f"code {code}"))
    with pytest.raises(MemoryError, match="code -9"):
        service.request("fail", "kill").result(60)


def test_entry_that_fails_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    service = Service(f"{handlers.__name__}:broken")
    with pytest.raises(ServiceEnded, match="exit code 1"):
        service.request("echo", 1).result(60)
    service.close()
    assert "libmissing.so" in capfd.readouterr().err


def test_stop_signals_do_not_end_the_process(start: Start) -> None:
    service = start()
    assert service.request("echo", 0).result(60) == 0
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1:
        service.process.send_signal(number)
    assert service.request("echo", 1).result(60) == 1


def test_close_interrupts_work_which_removes_its_temporary_files(start: Start, tmp_path: Path) -> None:
    ready, never = tmp_path / "ready", tmp_path / "never"
    os.mkfifo(ready)
    os.mkfifo(never)
    service = start()
    written = service.request("write_slowly", str(tmp_path / "out" / "file"), str(ready), str(never))
    ready.read_text()
    assert list((tmp_path / "out").iterdir())
    service.close()
    assert list((tmp_path / "out").iterdir()) == [] and service.process.returncode == 0
    with pytest.raises(ServiceEnded):
        written.result(60)


@pytest.mark.parametrize(
    ("method", "code"), [("end_in_a_destructor", 0), ("abort_when_interrupted", -signal.SIGABRT)]
)
def test_interrupt_that_is_lost_or_aborts_the_process_says_nothing(
    method: str, code: int, start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service, ready = start(), tmp_path / "ready"
    service.request(method, str(ready))
    wait_until(ready.exists)
    service.close()
    assert service.process.returncode == code and capfd.readouterr().err == ""


def test_process_that_does_not_end_is_killed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "GRACE_SECONDS", 0.3)
    service, ready = start(), tmp_path / "ready"
    service.request("ignore_the_end", str(ready))
    wait_until(ready.exists)
    service.close()
    assert service.process.returncode == -signal.SIGKILL


def test_process_ends_when_nobody_can_use_it_any_more(start: Start) -> None:
    service = Service(ENTRY)
    pid = service.request("pid").result(60)
    del service
    gc.collect()
    assert has_ended(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_process_ends_with_its_parent(number: signal.Signals) -> None:
    root = Path(msa.__file__).parents[1]
    command = [sys.executable, "-c", f"from {handlers.__name__} import busy_main; busy_main()"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as main:
        assert main.stdout is not None
        pid = int(main.stdout.readline())
        main.send_signal(number)
        assert main.wait(60) == -number
    # at once, although its handler ignores the end of the connection
    assert has_ended(pid, 5)


def test_process_that_starts_after_its_parent_was_killed_does_nothing(tmp_path: Path) -> None:
    started, go_on, written = (tmp_path / name for name in ("started", "go_on", "written"))
    os.mkfifo(started)
    os.mkfifo(go_on)
    # every process imports this before it does anything else
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "if os.environ.get('IS_SERVICE'):\n"
        f"    Path({str(started)!r}).write_text(str(os.getpid()))\n"
        f"    Path({str(go_on)!r}).read_text()\n"
    )
    code = (
        "import os, time\n"
        "from msa.base.services.pool import CALLS\n"
        "from msa.base.services.service import Service\n"
        "service = Service(CALLS, environment={'IS_SERVICE': 'yes'})\n"
        f"service.request('call', os.mkdir, {str(written)!r})\n"
        "time.sleep(600)\n"
    )
    root = Path(msa.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    main = subprocess.Popen([sys.executable, "-c", code], env=environment)
    pid = int(started.read_text())
    main.kill()
    main.wait()
    go_on.write_text("")
    assert has_ended(pid) and not written.exists()


def test_interrupted_request_ends_the_process(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = start()
    assert service.request("echo", 1).result(60) == 1
    channel = service._requests._channel
    connection = channel._socket

    class Interrupted:
        def sendall(self, block: bytes) -> None:
            connection.sendall(block[:5])
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

    with monkeypatch.context() as patch:
        patch.setattr(channel, "_socket", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            service.request("echo", 2)
    with pytest.raises(ServiceEnded):
        service.request("echo", 3).result(60)


def test_service_that_cannot_be_started() -> None:
    code = (
        "import os, resource\n"
        "from msa.base.services.pool import CALLS, ServicePool\n"
        "from msa.base.services.service import Service\n"
        "pool = ServicePool(1, os.getpid)\n"
        "open_files, limit = len(os.listdir('/proc/self/fd')), resource.RLIMIT_NOFILE\n"
        "resource.setrlimit(limit, (open_files, resource.getrlimit(limit)[1]))\n"
        "print(type(pool.submit(abs, -1).exception(timeout=120)).__name__)\n"
        "try:\n"
        "    Service(CALLS)\n"
        "except OSError:\n"
        "    print('here', flush=True)\n"
        "os._exit(0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (result.stdout, result.stderr) == ("OSError\nhere\n", "")


def test_dead_process_of_a_pool_fails_only_its_call() -> None:
    pool = ServicePool(2, partial(exec, "import os; os.environ['WARMED_UP'] = 'yes'"))
    futures = [pool.submit(os.getenv, "WARMED_UP") for _ in range(5)]
    died = pool.submit(eval, KILLED)
    with pytest.raises(ServiceEnded, match="killed by SIGKILL"):
        died.result(60)
    # the replacement of the dead process is warmed up too
    futures += [pool.submit(os.getenv, "WARMED_UP") for _ in range(5)]
    assert {future.result(60) for future in futures} == {"yes"}
    with pytest.raises(ZeroDivisionError):
        pool.submit(eval, "1 / 0").result(60)
    pool.close()


def test_calls_of_a_pool_are_sent_as_they_were_submitted() -> None:
    pool, values = ServicePool(1), [1]
    slow = pool.submit(time.sleep, 0.2)
    later = pool.submit(sum, values)
    values.append(5)
    assert slow.result(60) is None and later.result(60) == 1
    pool.close()


def test_started_pool_warms_up_without_calls(tmp_path: Path) -> None:
    marks = [tmp_path / "first", tmp_path / "second"]
    pool = ServicePool(1, partial(os.mkdir, str(marks[0])))
    for _ in range(2):
        pool.start()
    wait_until(marks[0].exists)
    pool.terminate()
    with pytest.raises(ChildProcessError, match="have been ended"):
        pool.submit(abs, -1).result(60)
    pool.close()
    # a pool that has ended starts no processes
    ended = ServicePool(1, partial(os.mkdir, str(marks[1])))
    ended.terminate()
    ended.start()
    ended.close()
    assert not marks[1].exists()


def test_terminated_pool_fails_the_calls_that_it_makes() -> None:
    pool = ServicePool(1)
    running, waiting = pool.submit(time.sleep, 600), pool.submit(abs, -1)
    wait_until(lambda: bool(pool._services))
    pool.terminate()
    for future in running, waiting:
        with pytest.raises(ChildProcessError):
            future.result(60)
    pool.close()
