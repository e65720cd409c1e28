"""The process of a service, which answers requests; see `msa.base.services.service`."""

import contextlib
import ctypes
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Generator
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from msa.base.services.frames import Channel, Kind

R = TypeVar("R")

_PR_SET_PDEATHSIG = 1
"""The option of prctl(2), from <linux/prctl.h>, that names the signal a process gets when its parent ends."""

# times that work is interrupted, because Python ignores exceptions in destructors; and seconds in between
_INTERRUPTS = 10
_REPEAT_SECONDS = 1.0


def end_with_parent() -> None:
    """Let the system kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve the socket whose file descriptor is the first argument; the second is the id of the parent."""
    server = _Server(Channel(socket.socket(fileno=int(sys.argv[1]))))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, server.end_if_closed)
    end_with_parent()
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    code = 1
    try:
        server.run()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    # the cleanup of Python and of a GPU takes time, and would wait for other threads
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Server:
    """The serving end of a socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._requests: SimpleQueue[tuple[int, bytearray]] = SimpleQueue()
        # numbers of the requests that are neither answered nor given up
        self._open: set[int] = set()
        self._handler: Any = None
        self._closed = False
        # number of the request that is being answered
        self._number = 0

    def run(self) -> None:
        """Answer the requests of the process that has started this one; the main thread calls this."""
        threading.Thread(target=self._receive, name="requests", daemon=True).start()
        number, entry_frame = self._requests.get()
        self._open.discard(number)
        entry, arguments, name, level = pickle.loads(entry_frame)
        if name:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [_Relay(self)], False
            logger.setLevel(level)
        module, _, function = entry.partition(":")
        self._handler = getattr(import_module(module), function)(self.report, *arguments)
        del arguments
        while True:
            self._answer(*self._requests.get())

    def run_here(self, handler: Any) -> None:
        """Answer requests in this thread until the other end is closed."""
        self._handler = handler
        with contextlib.suppress(EOFError):
            while True:
                number, _, request = self._channel.receive()
                self._open.add(number)
                self._answer(number, request)

    def report(self, *values: object) -> None:
        """Send progress."""
        self.send(self._number, Kind.PROGRESS, values)

    def send(self, number: int, kind: Kind, value: object) -> None:
        """Send an answer."""
        self._channel.send(number, kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def end_if_closed(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM; the exception lets temporary files be removed on the way out."""
        if self._closed:
            raise SystemExit(0)

    def _receive(self) -> None:
        """Queue requests until the other end is closed; then end the process."""
        with contextlib.suppress(EOFError):
            while True:
                number, kind, payload = self._channel.receive()
                if kind == Kind.CANCEL:
                    self._open.discard(number)
                else:
                    self._open.add(number)
                    self._requests.put((number, payload))
                del payload
        self._closed = True
        # nobody needs to read of an interrupt that is lost in a destructor, or that C++ aborts for
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for _ in range(_INTERRUPTS):
            # directed to the main thread, to interrupt what it waits for
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(_REPEAT_SECONDS)
        os._exit(1)

    def _answer(self, number: int, request: bytearray) -> None:
        """Answer a request, or begin to."""
        self._number = number
        try:
            method, arguments = pickle.loads(request)
            value = getattr(self._handler, method)(*arguments)
            if isinstance(value, Generator):
                value = self._send_items(number, value)
            if isinstance(value, Future):
                value.add_done_callback(partial(self._finish, number))
            else:
                self.send(number, Kind.RESULT, value)
        except Exception as error:
            self._fail(number, error)
        self._open.discard(number)
        self._number = 0

    def _send_items(self, number: int, items: Generator[Any, Any, R]) -> R | None:
        """Send the items of a generator until they are given up; return its value."""
        with contextlib.closing(items):
            while number in self._open:
                try:
                    item = next(items)
                except StopIteration as end:
                    return end.value
                self.send(number, Kind.ITEM, item)
                del item
        return None

    def _finish(self, number: int, done: "Future[Any]") -> None:
        try:
            self.send(number, Kind.RESULT, done.result())
        except Exception as error:
            self._fail(number, error)

    def _fail(self, number: int, error: Exception) -> None:
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.send(number, Kind.ERROR, (picklable(error), trace))


def serve(own: socket.socket, handler: Any) -> None:
    """Answer requests of a further process until it closes its end of a socket."""
    _Server(Channel(own)).run_here(handler)


def picklable(error: Exception) -> Exception:
    """Return the error if it survives pickling, else a RuntimeError with its class name and message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error's class may raise anything here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _Relay(logging.Handler):
    """A log handler that sends messages to the process that has started this one."""

    def __init__(self, server: _Server) -> None:
        super().__init__()
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        """Send a message."""
        message = record.levelno, record.getMessage(), getattr(record, "fields", None)
        self._server.send(0, Kind.LOG, message)
