"""Handlers of the services of test_service.py, and functions that they call."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msa.base.atomic import atomic_write
from msa.base.errors import InputError


class Odd(Exception):
    """An error that cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Handler:
    """A handler with a method of each kind."""

    def __init__(self, report: Callable[..., None], *arguments: Any) -> None:
        self._report, self.arguments = report, arguments
        self._threads = ThreadPoolExecutor(4)
        self._gate: Future[str] = Future()

    def given(self) -> tuple[Any, ...]:
        """Return the arguments of the entry."""
        return self.arguments

    def echo(self, value: Any) -> Any:
        """Return the argument."""
        return value

    def unfinished_requests(self) -> int:
        """Return the number of requests that the serving end remembers."""
        server = self._report.__self__  # type: ignore[attr-defined]
        return sum(len(value) for value in vars(server).values() if isinstance(value, set))

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()

    def environment(self, name: str) -> str | None:
        """Return a variable."""
        return os.environ.get(name)

    def wait_for_gate(self) -> "Future[str]":
        """Return a future that `open_gate` sets."""
        return self._gate

    def open_gate(self, value: str) -> None:
        """Set the future of `wait_for_gate`."""
        self._gate.set_result(value)

    def fail_later(self) -> "Future[None]":
        """Return a future that fails."""

        def fail() -> None:
            raise InputError("later", "a.fasta", 3)

        return self._threads.submit(fail)

    def fail(self, kind: str) -> None:
        """Raise an error, or end the process."""
        if kind == "input":
            raise InputError("too short", "q.fasta", 7)
        if kind == "odd":
            raise Odd("no ", "GPU")
        if kind == "exit":
            raise SystemExit(3)
        os.kill(os.getpid(), signal.SIGKILL)

    def unpicklable(self) -> Any:
        """Return what cannot be pickled."""
        return lambda: None

    def count(self, items: int, mark: str = "") -> Iterator[int]:
        """Yield numbers, with progress and a mark when the generator is closed."""
        try:
            for number in range(items):
                self._report(number, items)
                yield number
            if items == 3:
                raise InputError("three")
        finally:
            if mark:
                Path(mark).touch()

    def log(self) -> None:
        """Log a message with fields."""
        logging.getLogger("test of services").warning("%d kernels", 3, extra={"fields": {"kernels": 3}})
        logging.getLogger("test of services").debug("not requested")

    def report(self) -> None:
        """Report progress that belongs to no stream."""
        self._report("compiled", 1, 2)

    def write_slowly(self, path: str, ready: str, never: str) -> None:
        """Begin to write a file, tell so, and block."""
        with atomic_write(path) as stream:
            stream.write("half")
            Path(ready).write_text("")
            Path(never).read_text()

    def ignore_the_end(self, ready: str) -> None:
        """Hang whatever happens."""
        Path(ready).touch()
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue

    def abort_when_interrupted(self, ready: str) -> None:
        """Abort with a message, as C++ does when a Python function that it has called fails."""
        try:
            Path(ready).touch()
            time.sleep(60)
        except BaseException:
            os.write(2, b"terminate called after throwing an instance of 'python_error'")
            os.abort()

    def end_in_a_destructor(self, ready: str) -> None:
        """Lose the first exception that ends the process."""

        class Slow:
            def __del__(self) -> None:
                Path(ready).touch()
                time.sleep(60)

        Slow()
        time.sleep(60)


def broken(report: Callable[..., None]) -> None:
    """Fail as an entry whose library is missing."""
    raise ImportError("libmissing.so")


def busy_main() -> None:
    """Start a service, print the id of its process, and wait, as the main process of a run does."""
    from msa.base.services.service import Service

    service = Service(f"{__name__}:Handler")
    print(service.request("pid").result(), flush=True)
    service.request("ignore_the_end", os.devnull)
    time.sleep(600)
