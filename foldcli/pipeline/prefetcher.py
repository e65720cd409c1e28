"""What is needed next is made in a background thread while the last is used; memory stays bounded."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Ahead(Generic[T, R]):
    """What a function makes of items, in order, at most one of them ahead of the one that is in use.

    Args:
        items: what there is.
        make: called with each item, by one thread at a time; None says that there is nothing to be done for
            it, and that the next may be made as well.
        background: an executor of one thread, or None: all is made when it is asked for.
    """

    def __init__(
        self, items: Sequence[T], make: Callable[[T], R | None], background: Executor | None
    ) -> None:
        self.waited = 0.0
        """Seconds that `take` took the last time."""
        self._items, self._make, self._background = items, make, background
        self._made: dict[int, Future[R | None]] = {}
        self._next = 0
        self._lock = Lock()

    @property
    def left(self) -> int:
        """How many items have not been taken."""
        return len(self._items) - self._next

    def start(self) -> None:
        """Begin with the next item, if that has not been done, there is one, and there is a thread for it."""
        if self._background is not None:
            self._begin(self._next)

    def make_now(self) -> None:
        """Make the next item in the calling thread; `take` will not wait. Raises what making raises."""
        future: Future[R | None] = Future()
        future.set_result(self._make(self._items[self._next]))
        self._made[self._next] = future

    def take(self) -> R | None:
        """What was made of the next item, which is waited for; raises what making it raised."""
        begin = time.perf_counter()
        place = self._next
        if place not in self._made:
            self.start()
        self._next += 1
        try:
            # the future is let go, so that what it holds lives no longer than its user wants
            future = self._made.pop(place, None)
            return self._make(self._items[place]) if future is None else future.result()
        finally:
            self.waited = time.perf_counter() - begin

    def _begin(self, place: int) -> None:
        assert self._background is not None
        with self._lock:
            if place < len(self._items) and place >= self._next and place not in self._made:
                self._made[place] = self._background.submit(self._run, place)

    def _run(self, place: int) -> R | None:
        made = self._make(self._items[place])
        if made is None:
            self._begin(place + 1)
        return made
