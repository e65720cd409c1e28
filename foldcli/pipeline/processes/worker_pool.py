"""A pool of worker processes in which the death of one worker fails only the item it was working on.

Each worker has its own pipe, and one item at a time; a function that returns `Unfinished` gets the next item
while the result of the last is collected. A worker's log messages return with a result, so that only the main
process writes to the terminal.
"""

import contextlib
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock, Thread
from types import FrameType
from typing import Any, Generic, TypeAlias, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.processes.background import CallQueue, run_concurrently
from foldcli.process_state import exit_at_once, set_up_worker_process

T = TypeVar("T")
R = TypeVar("R")

# seconds that a worker has to end after a signal before it is killed
_GRACE = 10.0
# Schedulers send SIGTERM to all processes of a run. The calls of a worker that it has ended fail this many
# seconds later, when the main process has stopped the run.
_SIGNAL_SECONDS = 0.5
# results that a worker collects before it takes another call
_MAX_UNFINISHED = 2


class RemoteTraceback(Exception):
    """The traceback of an error raised in a worker; the cause of that error in the main process."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class CallInterrupted(ChildProcessError):
    """The error of a call whose worker ended while it made a later call; calling again may succeed."""


@dataclass(frozen=True)
class Unfinished(Generic[R]):
    """A result that a worker still has to collect, while it can already make the next call.

    Args:
        collect: waits for the result; called in a second thread of the worker, in the order of the calls.
    """

    collect: Callable[[], R]


class Call(Generic[R]):
    """A call in a worker.

    Attributes:
        started: done when the function has returned, with its error if it has raised one.
        result: the result. The worker's messages are logged before it is set.
    """

    def __init__(self) -> None:
        self.started: Future[None] = Future()
        self.result: Future[R] = Future()

    def set_started(self) -> None:
        """Note that the function has returned."""
        if not self.started.done():
            self.started.set_result(None)

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Set the result, or the error if there is one."""
        if error is None:
            self.set_started()
            self.result.set_result(value)
            return
        if not self.started.done():
            self.started.set_exception(error)
        self.result.set_exception(error)


# a call, and the pickled function and argument; None ends a worker
_Calls: TypeAlias = "SimpleQueue[tuple[Call[Any], bytes] | None]"


class WorkerPool:
    """Worker processes that call functions.

    A worker that dies (killed, or a crash in compiled code) fails only the call that it started last, and is
    replaced; earlier calls that are not finished raise `CallInterrupted`.

    Args:
        processes: largest number of workers, at least 1.
        warm_up: called without arguments by each worker when it starts, for example to import libraries.
            If it is given, `start` or the first call starts all workers, otherwise each starts with its first
            call.
    """

    def __init__(self, processes: int, warm_up: Callable[[], None] | None = None) -> None:
        self._calls: _Calls = SimpleQueue()
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
        """Queue the call `function(item)`; return its future result.

        Args:
            function: a function of a module; it, the item and the result are pickled.
            item: its argument.
        """
        return self.call(function, item).result

    def call(self, function: Callable[[T], R | Unfinished[R]], item: T) -> Call[R]:
        """Queue the call `function(item)`, see `submit`; the function may return `Unfinished`."""
        self.start()
        call = Call[R]()
        # pickled here, because a worker must not import the function's module before it is set up
        self._calls.put((call, pickle.dumps((function, item), pickle.HIGHEST_PROTOCOL)))
        return call

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
        wait(run_concurrently([worker.terminate for worker in self._workers], len(self._workers)))


class _Worker:
    """A thread that sends calls to its own process.

    The thread starts the process, because the system kills the process when the thread ends, for example
    with a killed main process (see `set_up_worker_process`).
    """

    def __init__(self, calls: _Calls, warm_up: Callable[[], None] | None) -> None:
        self._calls = calls
        self._warm_up = None if warm_up is None else pickle.dumps(warm_up)
        self._process: _WorkerProcess | None = None
        self._terminated = False
        self._lock = Lock()
        self.thread = Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        with self._lock:
            self._terminated = True
            process = self._process
        if process is not None:
            process.terminate()

    def _run(self) -> None:
        if self._warm_up is not None:
            # the first call fails with the same error; without this thread, it would wait forever
            with contextlib.suppress(Exception):
                self._running_process()
        while (item := self._calls.get()) is not None:
            call, request = item
            try:
                while not self._running_process().send(call, request):
                    pass
            except BaseException as error:
                call.finish(None, error)
            # freed before waiting for the next call
            del item, call, request
        if self._process is not None:
            self._process.close()

    def _running_process(self) -> "_WorkerProcess":
        """Return the process, starting one if there is none or it has ended."""
        with self._lock:
            if self._terminated:
                raise ChildProcessError("the workers have been ended")
            if self._process is None or self._process.ended:
                self._process = _WorkerProcess(self._warm_up)
            return self._process


class _WorkerProcess:
    """A process that makes calls, and a thread that receives their results.

    Attributes:
        ended: whether the process has ended.
    """

    def __init__(self, warm_up: bytes | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (os.getpid(), theirs, warm_up, logger.level)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.ended, self._terminated = False, False
        self._count, self._unfinished = 0, dict[int, Call[Any]]()
        self._lock = Lock()
        self._receiver = Thread(target=self._receive, name="results", daemon=True)
        self._receiver.start()

    def send(self, call: Call[Any], request: bytes) -> bool:
        """Send a call, and wait until the process can take the next one; return False if it has ended."""
        with self._lock:
            if self.ended:
                return False
            self._unfinished[self._count] = call
            self._count += 1
        # if the process ends, the receiving thread fails the call
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(request)
        wait([call.started])
        return True

    def terminate(self) -> None:
        """End the process at once."""
        self._terminated = True
        self._process.terminate()
        self._process.join(_GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def close(self) -> None:
        """End the process after its calls."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(b"")
        self._receiver.join()
        self._process.join()

    def _receive(self) -> None:
        """Receive results until the process ends, then fail the calls that it has not finished."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, has_result = self._pipe.recv()
                if has_result:
                    self._finish(number, self._pipe.recv_bytes())
                else:
                    self._unfinished[number].set_started()
        self._process.join()
        if self._process.exitcode == 128 + signal.SIGTERM and not self._terminated:
            time.sleep(_SIGNAL_SECONDS)
        with self._lock:
            self.ended = True
        self._pipe.close()
        reason = exit_reason(self._process.exitcode)
        *interrupted, last = [None, *self._unfinished.values()]
        for call in interrupted:
            if call is not None:
                call.finish(None, CallInterrupted(reason))
        if last is not None:
            last.finish(None, ChildProcessError(reason))

    def _finish(self, number: int, result: bytes) -> None:
        with self._lock:
            call = self._unfinished.pop(number)
        try:
            value, error, trace, logged = pickle.loads(result)
        except Exception as raised:  # a class may raise anything here
            value, error, trace, logged = None, raised, "", ()
        for level, text in logged:
            logger.log(level, "%s", text)
        if error is not None and trace:
            error.__cause__ = RemoteTraceback(trace)
        call.finish(value, error)


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
    """Run one worker, and end its process; see `_serve_calls`."""
    code = 0
    try:
        _serve_calls(parent, pipe, warm_up, level)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    exit_at_once(code)


def _serve_calls(parent: int, pipe: Connection, warm_up: bytes | None, level: int) -> None:
    """Receive calls and send results until an empty call comes or the pipe is closed."""
    set_up_worker_process(parent, _exit_on_signal)
    recorder = _LogRecorder()
    logger.handlers, logger.propagate = [recorder], False
    logger.setLevel(level)
    if warm_up is not None:
        pickle.loads(warm_up)()
    results = _ResultPipe(pipe, recorder)
    with CallQueue(_MAX_UNFINISHED) as collector, contextlib.suppress(EOFError, BrokenPipeError):
        for number in itertools.count():
            if not (request := pipe.recv_bytes()):
                return
            value = results.send_result(number, partial(_call, request))
            if value is not None:
                results.send_started(number)
                collector.submit(partial(results.send_result, number, value.collect))
            # freed before waiting for the next call
            del request, value


def _call(request: bytes) -> Any:
    function, item = pickle.loads(request)
    return function(item)


class _ResultPipe:
    """The sending end of a worker's pipe, which two threads use."""

    def __init__(self, pipe: Connection, recorder: "_LogRecorder") -> None:
        self._pipe, self._recorder, self._lock = pipe, recorder, Lock()

    def send_started(self, number: int) -> None:
        """Send that the function of a call has returned `Unfinished`."""
        with self._lock:
            self._pipe.send((number, False))

    def send_result(self, number: int, make: Callable[[], Any]) -> Unfinished[Any] | None:
        """Send what a function returns or raises as the result of a call; return it if it is unfinished."""
        value, error, trace = None, None, ""
        try:
            value = make()
        except Exception as raised:
            error, trace = picklable(raised), "".join(traceback.format_exception(raised)).rstrip()
        if isinstance(value, Unfinished):
            return value
        result = pickle.dumps((value, error, trace, self._recorder.take()), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._pipe.send((number, True))
            self._pipe.send_bytes(result)
        return None


def picklable(error: Exception) -> Exception:
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
        self._taking = Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        with self._taking:
            self._messages.append((record.levelno, record.getMessage()))

    def take(self) -> tuple[tuple[int, str], ...]:
        """Return the messages kept since the last call."""
        with self._taking:
            messages, self._messages = tuple(self._messages), []
        return messages
