"""Work on many items in several processes, of which none takes the others down with it.

Each process has one item at a time and a pipe of its own. What it logs comes back with the item's result, so
that lines are never torn and one process alone writes to the terminal.
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

# seconds that processes told to end have for what they are in the middle of
_GRACE = 10.0


@dataclass
class Outcome(Generic[T, R]):
    """What became of one item.

    Args:
        index: of the item, in the order in which they came.
        item: itself.
        result: what the function returned, if it did.
        error: what it raised, if it did.
        place: the error's traceback.
        logged: level and text of what it logged.
    """

    index: int
    item: T
    result: R | None = None
    error: Exception | None = None
    place: str = ""
    logged: tuple[tuple[int, str], ...] = ()

    def get(self) -> R:
        """The result, after logging what was logged on the way to it; raises the error if there was one."""
        for level, text in self.logged:
            logger.log(level, "%s", text)
        if self.error is not None:
            raise self.error from (RemoteTraceback(self.place) if self.place else None)
        return self.result  # type: ignore[return-value]


class RemoteTraceback(Exception):
    """Where in another process an error was raised; the cause of the error that came from there."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def in_processes(work: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[Outcome[T, R]]:
    """The outcome of `work` for each item, as they are there.

    A process that dies (killed, a crash in compiled code) fails its item alone; another takes its place. When
    the caller stops, by an interrupt for instance, all processes are ended: temporary files go with them.

    Args:
        work: a function of a module; it, the items and the results are pickled.
        items: taken one by one, as processes are free.
        processes: at least 1.
    """
    pool = _Pool(work)
    try:
        for index, item in enumerate(items):
            if len(pool.busy) == processes:
                yield pool.finished()
            pool.give(index, item)
        while pool.busy:
            yield pool.finished()
    finally:
        pool.end()


class _Pool:
    """The processes of `in_processes`; one is started when an item finds none idle."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._work = work
        self._idle: list[_Worker] = []
        self.busy: dict[Connection, _Worker] = {}

    def give(self, index: int, item: Any) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        self.busy[worker.pipe] = worker
        worker.index, worker.item = index, item
        # one that has died since is found out by `finished`
        try:
            worker.pipe.send(item)
        except BrokenPipeError:
            return

    def finished(self) -> Outcome[Any, Any]:
        """Wait for one item."""
        pipe = wait(list(self.busy))[0]
        assert isinstance(pipe, Connection)
        worker = self.busy.pop(pipe)
        try:
            outcome = Outcome(worker.index, worker.item, *pipe.recv())
        except (EOFError, ConnectionResetError):
            worker.process.join()
            pipe.close()
            error = ChildProcessError(_end(worker.process.exitcode))
            return Outcome(worker.index, worker.item, error=error)
        self._idle.append(worker)
        return outcome

    def end(self) -> None:
        """End the idle by closing their pipes, the busy by a signal, and wait for both."""
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
        process = self._context.Process(target=_serve, args=(theirs, self._work, logger.level), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    index: int = -1
    item: Any = None


def _end(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def _serve(pipe: Connection, work: Callable[[Any], Any], level: int) -> None:
    """The life of one process: items in, outcomes out, until there is nobody to talk to."""
    set_up_worker_process(on_terminate=_leave)
    lines = _Lines()
    logger.handlers, logger.propagate = [lines], False
    logger.setLevel(level)
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        result, error, place = None, None, ""
        try:
            result = work(item)
        except Exception as raised:
            error, place = _sendable(raised), "".join(traceback.format_exception(raised)).rstrip()
        try:
            pipe.send((result, error, place, lines.take()))
        except BrokenPipeError:
            return


def _sendable(error: Exception) -> Exception:
    """The error itself if it comes out of a pipe as it went in, else one with its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class does with what it was pickled with
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _leave(number: int, frame: FrameType | None) -> None:
    # as an exception, so that what is half-written is put away
    raise SystemExit(128 + number)


class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.levelno, record.getMessage()))

    def take(self) -> tuple[tuple[int, str], ...]:
        lines, self._lines = tuple(self._lines), []
        return lines
