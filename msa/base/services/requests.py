"""Requests to another process over a socket, and their answers as futures or streams."""

import contextlib
import itertools
import logging
import pickle
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from msa.base.services.frames import Channel, Kind


class RemoteTraceback(Exception):
    """The traceback of an error in another process; the cause of that error in this one."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class ResultStream:
    """The items of a request, in order, as they arrive; `close` gives up those that are left.

    Args:
        number: number of the request.
        requests: those to the process.
        progress: called, by the thread that takes the items, with the progress that the process reports.
    """

    def __init__(self, number: int, requests: "Requests", progress: Callable[..., None] | None) -> None:
        self._number, self._requests, self._progress = number, requests, progress
        self._arrived: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._has_ended = False

    def __iter__(self) -> "ResultStream":
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, seconds: float | None = None) -> Any:
        """Wait for the next item.

        Args:
            seconds: longest time without an item or progress; None for no limit.

        Raises:
            StopIteration: there are no more.
            TimeoutError: the process was silent for too long.
            Exception: the error of the request.
        """
        while not self._has_ended:
            try:
                kind, value = self._arrived.get(timeout=seconds)
            except Empty:
                raise TimeoutError from None
            if kind == Kind.ITEM:
                return value
            if kind == Kind.PROGRESS:
                if self._progress is not None:
                    self._progress(*value)
                continue
            self._has_ended = True
            if kind == Kind.ERROR:
                raise value
        raise StopIteration

    def put(self, kind: int, value: Any) -> None:
        """Add what has arrived."""
        self._arrived.put((kind, value))

    def close(self) -> None:
        """Let the process end the request, unless it has ended."""
        if not self._has_ended:
            self._has_ended = True
            self._requests.cancel(self._number)


class Requests:
    """The pending requests to a process.

    Args:
        own: this process's end of the socket.
        ended: returns the error of requests that are not answered before the other end is closed.
        on_progress: called, in the receiving thread, with progress that belongs to no stream.
        logger: gets the messages of the process.
    """

    def __init__(
        self,
        own: socket.socket,
        ended: Callable[[], Exception],
        on_progress: Callable[..., None] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._channel, self._ended, self._on_progress, self._logger = (
            Channel(own),
            ended,
            on_progress,
            logger,
        )
        self._lock, self._numbers = threading.Lock(), itertools.count(1)
        self._pending: dict[int, Future[Any] | ResultStream] = {}
        self._error: Exception | None = None
        self.hang_up, self.close = self._channel.hang_up, self._channel.close

    @property
    def has_ended(self) -> bool:
        """Return True if the other end was closed."""
        return self._error is not None

    def begin(self, entry: bytes) -> None:
        """Send the first frame."""
        self._channel.send(0, Kind.REQUEST, entry)

    def request(self, method: str, *arguments: object) -> "Future[Any]":
        """Send a request; return its future answer."""
        return self.send(dump_request(method, *arguments))

    def send(self, request: bytes) -> "Future[Any]":
        """Send what `dump_request` has returned; return the future answer."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._begin(next(self._numbers), request, future)
        return future

    def stream(
        self, method: str, *arguments: object, progress: Callable[..., None] | None = None
    ) -> ResultStream:
        """Send a request whose method is a generator; return its items."""
        stream = ResultStream(number := next(self._numbers), self, progress)
        self._begin(number, dump_request(method, *arguments), stream)
        return stream

    def cancel(self, number: int) -> None:
        """Give up a stream; the process closes its generator at the next item."""
        with self._lock:
            self._pending.pop(number, None)
        self._channel.send(number, Kind.CANCEL, b"")

    def receive(self) -> None:
        """Handle answers until the other end is closed; runs in a thread of its own."""
        with contextlib.suppress(EOFError):
            while True:
                self._handle(*self._channel.receive())

    def receive_in_background(self, name: str) -> None:
        """Handle answers in a thread of this name, and fail the pending requests at the end."""

        def work() -> None:
            self.receive()
            self.fail_pending()

        threading.Thread(target=work, name=name, daemon=True).start()

    def fail_pending(self) -> None:
        """Fail the pending requests and all later ones."""
        error = self._ended()
        with self._lock:
            self._error, pending = error, list(self._pending.values())
            self._pending.clear()
        self.close()
        for answer in pending:
            _settle(answer, Kind.ERROR, error)

    def _begin(self, number: int, request: bytes, answer: "Future[Any] | ResultStream") -> None:
        with self._lock:
            if (error := self._error) is None:
                self._pending[number] = answer
        if error is not None:
            _settle(answer, Kind.ERROR, error)
        else:
            self._channel.send(number, Kind.REQUEST, request)

    def _handle(self, number: int, kind: int, payload: bytearray) -> None:
        try:
            value = pickle.loads(payload)
            if kind == Kind.ERROR:
                value, trace = value
                value.__cause__ = RemoteTraceback(trace)
        except Exception as raised:  # a class may raise anything here
            kind, value = Kind.ERROR, raised
        if kind == Kind.LOG:
            level, text, fields = value
            if self._logger is not None:
                self._logger.log(level, "%s", text, extra={"fields": fields} if fields else None)
            return
        with self._lock:
            unfinished = kind in (Kind.ITEM, Kind.PROGRESS)
            answer = self._pending.get(number) if unfinished else self._pending.pop(number, None)
        if kind == Kind.PROGRESS and not isinstance(answer, ResultStream):
            if self._on_progress is not None:
                self._on_progress(*value)
        elif answer is not None:
            # else it is of a stream that was given up
            _settle(answer, kind, value)


def dump_request(method: str, *arguments: object) -> bytes:
    """Return a request as bytes, which `Requests.send` takes."""
    return pickle.dumps((method, arguments), pickle.HIGHEST_PROTOCOL)


def _settle(answer: "Future[Any] | ResultStream", kind: int, value: Any) -> None:
    """Give an answer to the caller that waits for it."""
    if isinstance(answer, ResultStream):
        answer.put(kind, value)
    elif kind == Kind.ERROR:
        answer.set_exception(value)
    else:
        answer.set_result(value)
