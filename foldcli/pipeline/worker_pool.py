"""A pool of worker processes in which the death of one worker fails only the item it was working on.

Each worker has one item at a time and its own pipe. Its log messages return with the item's result, so that
only the main process writes to the terminal.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock, Thread
from types import FrameType
from typing import Any, Generic, TypeVar

from foldcli.logs import logger
from foldcli.process_state import set_up_worker_process

T = TypeVar("T")
R = TypeVar("R")

# seconds that a worker has to end after a signal before it is killed
_GRACE = 10.0


class RemoteTraceback(Exception):
    """The traceback of an error raised in a worker; the cause of that error in the main process."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class WorkerPool:
    """Worker processes that call functions.

    A worker that dies (killed, or a crash in compiled code) fails only its own call, and is replaced.

    Args:
        processes: largest number of workers, at least 1.
        warm_up: called without arguments by each worker when it starts, for example to import libraries.
            If it is given, `start` or the first call starts all workers, otherwise each starts with its first
            call.
    """

    def __init__(self, processes: int, warm_up: Callable[[], None] | None = None) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], bytes] | None] = SimpleQueue()
        self._processes, self._warm_up = processes, warm_up
        self._workers: list[_Worker] = []
        self._terminated = False
        self._lock = Lock()

    def start(self) -> None:
        """Start the workers, unless they have been started or ended; may be called by any thread."""
        with self._lock:
            if not (self._workers or self._terminated):
                self._workers = [_Worker(self._calls, self._warm_up) for _ in range(self._processes)]

    def submit(self, function: Callable[[T], R], item: T) -> Future[R]:
        """Queue the call `function(item)`.

        Args:
            function: a function of a module; it, the item and the result are pickled.
            item: its argument.

        Returns:
            The result. The worker's messages are logged before it is set.
        """
        self.start()
        future: Future[R] = Future()
        # pickled here, because a worker must not import the function's module before it is set up
        self._calls.put((future, pickle.dumps((function, item), pickle.HIGHEST_PROTOCOL)))
        return future

    def close(self) -> None:
        """Finish all queued calls, and end the workers."""
        for _ in self._workers:
            self._calls.put(None)
        for worker in self._workers:
            worker.thread.join()

    def terminate(self) -> None:
        """End the workers at once; they remove their temporary files, and their calls fail."""
        with self._lock:
            self._terminated = True
        for worker in self._workers:
            worker.terminate()


class _Worker:
    """A thread that passes calls to its own process.

    The thread starts the process, because the system kills the process when the thread ends, for example
    with a killed main process (see `set_up_worker_process`).
    """

    def __init__(
        self, calls: "SimpleQueue[tuple[Future[Any], bytes] | None]", warm_up: Callable[[], None] | None
    ) -> None:
        self._calls = calls
        self._warm_up = None if warm_up is None else pickle.dumps(warm_up)
        self._process: Any = None
        self._pipe: Connection | None = None
        self._terminated = False
        self._lock = Lock()
        self.thread = Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        with self._lock:
            self._terminated = True
            process = self._process
        if process is None:
            return
        process.terminate()
        process.join(_GRACE)
        if process.is_alive():
            process.kill()
            process.join()

    def _run(self) -> None:
        if self._warm_up is not None:
            with contextlib.suppress(ChildProcessError):
                self._start()
        while (call := self._calls.get()) is not None:
            future, request = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                value = self._call(request)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)
            # freed before waiting for the next call
            del call, future, request
        with self._lock:
            if self._pipe is not None:
                self._pipe.close()
            if self._process is not None:
                self._process.join()

    def _start(self) -> Connection:
        """Return the pipe of the process, starting it if there is none."""
        with self._lock:
            if self._terminated:
                raise ChildProcessError("the workers have been ended")
            if self._pipe is None:
                context = multiprocessing.get_context("spawn")
                self._pipe, theirs = context.Pipe()
                arguments = (os.getpid(), theirs, self._warm_up, logger.level)
                self._process = context.Process(target=_serve, args=arguments, daemon=True)
                self._process.start()
                theirs.close()
            return self._pipe

    def _call(self, request: bytes) -> Any:
        pipe = self._start()
        try:
            pipe.send_bytes(request)
            value, error, trace, logged = pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            pipe.close()
            code = self._process.exitcode
            with self._lock:
                self._process = self._pipe = None
            raise ChildProcessError(exit_reason(code)) from None
        for level, text in logged:
            logger.log(level, "%s", text)
        if error is not None:
            raise error from (RemoteTraceback(trace) if trace else None)
        return value


@dataclass
class WorkResult(Generic[T, R]):
    """The result of one item of `map_in_processes`, or the error that it failed with.

    Args:
        index: position of the item in the input.
        item: the item.
        value: the function's return value, if it succeeded.
        error: the exception that it raised, if it failed.
    """

    index: int
    item: T
    value: R | None = None
    error: BaseException | None = None

    def get(self) -> R:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def map_in_processes(
    function: Callable[[T], R], items: Iterable[T], processes: int
) -> Iterator[WorkResult[T, R]]:
    """Yield the result of `function` for each item, in the order in which they finish.

    When the caller stops, for example because of an interrupt, all workers end and remove their temporary
    files.

    Args:
        function: a function of a module; it, the items and the results are pickled.
        items: taken one by one, as workers become free.
        processes: at least 1.
    """
    pool = WorkerPool(processes)
    running: dict[Future[R], tuple[int, T]] = {}

    def finished() -> Iterator[WorkResult[T, R]]:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            index, item = running.pop(future)
            error = future.exception()
            yield WorkResult(index, item, None if error else future.result(), error)

    try:
        for index, item in enumerate(items):
            if len(running) == processes:
                yield from finished()
            running[pool.submit(function, item)] = index, item
        while running:
            yield from finished()
        pool.close()
    finally:
        pool.terminate()


def exit_reason(code: int | None) -> str:
    """Return how a process has ended, given its exit code in the form of `multiprocessing`."""
    if code is not None and code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def _serve(parent: int, pipe: Connection, warm_up: bytes | None, level: int) -> None:
    """Run one worker: receive calls and send results until the pipe is closed."""
    set_up_worker_process(parent, _exit_on_signal)
    recorder = _LogRecorder()
    logger.handlers, logger.propagate = [recorder], False
    logger.setLevel(level)
    if warm_up is not None:
        pickle.loads(warm_up)()
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            return
        value, error, trace = None, None, ""
        try:
            function, item = pickle.loads(request)
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
