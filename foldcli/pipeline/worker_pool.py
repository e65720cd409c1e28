"""A pool of worker processes in which the death of one worker fails only the item it was working on.

Each worker has one item at a time and its own pipe. Its log messages return with the item's result, so that
only the main process writes to the terminal.
"""

import logging
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Generic, TypeVar

from foldcli.logs import logger
from foldcli.process_state import set_up_worker_process

T = TypeVar("T")
R = TypeVar("R")

# seconds that a worker has to end after a signal before it is killed
_GRACE = 10.0


@dataclass
class WorkResult(Generic[T, R]):
    """The result of one item, or the error that it failed with.

    Args:
        index: position of the item in the input.
        item: the item.
        value: the function's return value, if it succeeded.
        error: the exception that it raised, if it failed.
        traceback: text of the error's traceback.
        logged: level and text of each message that the worker logged.
    """

    index: int
    item: T
    value: R | None = None
    error: Exception | None = None
    traceback: str = ""
    logged: tuple[tuple[int, str], ...] = ()

    def get(self) -> R:
        """Log the worker's messages, then return the value or raise the error."""
        for level, text in self.logged:
            logger.log(level, "%s", text)
        if self.error is not None:
            raise self.error from (RemoteTraceback(self.traceback) if self.traceback else None)
        return self.value  # type: ignore[return-value]


class RemoteTraceback(Exception):
    """The traceback of an error raised in a worker; the cause of that error in the main process."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def map_in_processes(
    function: Callable[[T], R], items: Iterable[T], processes: int
) -> Iterator[WorkResult[T, R]]:
    """Yield the result of `function` for each item, in the order in which they finish.

    A worker that dies (killed, or a crash in compiled code) fails only its own item; a new worker replaces
    it. When the caller stops, for example because of an interrupt, all workers end and remove their temporary
    files.

    Args:
        function: a function of a module; it, the items and the results are pickled.
        items: taken one by one, as workers become free.
        processes: at least 1.
    """
    pool = _Pool(function)
    try:
        for index, item in enumerate(items):
            if len(pool.busy) == processes:
                yield pool.wait_for_one()
            pool.assign(index, item)
        while pool.busy:
            yield pool.wait_for_one()
    finally:
        pool.end()


class _Pool:
    """The workers of `map_in_processes`; a worker is started when none is idle."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._function = function
        self._idle: list[_Worker] = []
        self.busy: dict[Connection, _Worker] = {}

    def assign(self, index: int, item: Any) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        self.busy[worker.pipe] = worker
        worker.index, worker.item = index, item
        # `wait_for_one` finds out if the worker has died
        try:
            worker.pipe.send(item)
        except BrokenPipeError:
            return

    def wait_for_one(self) -> WorkResult[Any, Any]:
        """Wait until one item is finished."""
        pipe = wait(list(self.busy))[0]
        assert isinstance(pipe, Connection)
        worker = self.busy.pop(pipe)
        try:
            result = WorkResult(worker.index, worker.item, *pipe.recv())
        except (EOFError, ConnectionResetError):
            worker.process.join()
            pipe.close()
            error = ChildProcessError(_exit_reason(worker.process.exitcode))
            return WorkResult(worker.index, worker.item, error=error)
        self._idle.append(worker)
        return result

    def end(self) -> None:
        """End idle workers by closing their pipes and busy ones by a signal, and wait for all."""
        for worker in self._idle:
            worker.pipe.close()
        for worker in self.busy.values():
            worker.process.terminate()
        for worker in (*self._idle, *self.busy.values()):
            worker.process.join(_GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _start(self) -> "_Worker":
        ours, theirs = self._context.Pipe()
        # pickled, because its module may import numpy, which reads settings that `_serve` makes first
        function = pickle.dumps(self._function)
        process = self._context.Process(target=_serve, args=(theirs, function, logger.level), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    index: int = -1
    item: Any = None


def _exit_reason(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def _serve(pipe: Connection, pickled_function: bytes, level: int) -> None:
    """Run one worker: receive items and send results until the pipe is closed."""
    set_up_worker_process(on_terminate=_exit_on_signal)
    recorder = _LogRecorder()
    logger.handlers, logger.propagate = [recorder], False
    logger.setLevel(level)
    function = pickle.loads(pickled_function)
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        value, error, trace = None, None, ""
        try:
            value = function(item)
        except Exception as raised:
            error, trace = _picklable(raised), "".join(traceback.format_exception(raised)).rstrip()
        try:
            pipe.send((value, error, trace, recorder.take()))
        except BrokenPipeError:
            return


def _picklable(error: Exception) -> Exception:
    """Return the error if it survives pickling, else a RuntimeError with its class name and message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error's class may raise anything here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    # an exception, so that temporary files are removed on the way out
    raise SystemExit(128 + number)


class _LogRecorder(logging.Handler):
    """A log handler that keeps messages until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self._messages.append((record.levelno, record.getMessage()))

    def take(self) -> tuple[tuple[int, str], ...]:
        """Return the messages kept since the last call."""
        messages, self._messages = tuple(self._messages), []
        return messages
