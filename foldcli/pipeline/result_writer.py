"""Results are finished in a thread beside what makes the next ones; how many wait there is bounded."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# that have been begun and are not done
MOST = 2


class Beside:
    """Makes calls one after another.

    Args:
        in_background: in a thread of their own; otherwise each is done before `begin` returns.
    """

    def __init__(self, in_background: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "results") if in_background else None
        self._begun: deque[Future[Any]] = deque()

    def begin(self, call: Callable[[], T]) -> "Future[T]":
        """What the call will give or raise; waits while there are too many before it."""
        if self._thread is None:
            return _done(call)
        while len(self._begun) >= MOST:
            self._begun.popleft().exception()
        future = self._thread.submit(call)
        self._begun.append(future)
        return future

    def finish(self) -> None:
        """Wait for all that was begun."""
        if self._thread is not None:
            self._thread.shutdown()


def settled(value: T) -> "Future[T]":
    """What is known already, as if it had been begun."""
    return _done(lambda: value)


def _done(call: Callable[[], T]) -> "Future[T]":
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future
