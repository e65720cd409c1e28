"""Background threads: single calls, a prefetcher for what is needed next, and a writer for results."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# the largest number of writes that have been started and are not finished
MAX_PENDING_WRITES = 2


def run_in_background(call: Callable[[], T]) -> Future[T]:
    """Run a call in a thread of its own, which the process does not wait for when it ends."""
    return run_concurrently([call], 1)[0]


def run_concurrently(calls: Sequence[Callable[[], T]], threads: int) -> list[Future[T]]:
    """Run calls in up to `threads` threads, which the process does not wait for when it ends.

    Args:
        calls: started in order.
        threads: at least 1.

    Returns:
        One future per call, in order.
    """
    futures: list[Future[T]] = [Future() for _ in calls]
    waiting: SimpleQueue[tuple[Callable[[], T], Future[T]]] = SimpleQueue()
    for item in zip(calls, futures, strict=True):
        waiting.put(item)

    def work() -> None:
        while True:
            try:
                call, future = waiting.get_nowait()
            except Empty:
                return
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

    for _ in range(min(threads, len(calls))):
        Thread(target=work, daemon=True).start()
    return futures


def completed(value: T) -> Future[T]:
    """Return a finished future with a value."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


class Prefetcher(Generic[T, R]):
    """Prepares items in order in a background thread, at most one ahead of the item in use.

    Args:
        items: items to prepare.
        prepare: called with each item, by one thread at a time. A result of None means that the item needs no
            work, so the thread continues with the next item.
        executor: an executor of one thread; None prepares each item when it is taken.
    """

    def __init__(
        self, items: Sequence[T], prepare: Callable[[T], R | None], executor: Executor | None
    ) -> None:
        self.waited = 0.0
        """Seconds that the last call of `take` waited."""
        self._items, self._prepare, self._executor = items, prepare, executor
        self._futures: dict[int, Future[R | None]] = {}
        self._next = 0
        self._lock = Lock()

    @property
    def remaining(self) -> int:
        """The number of items that have not been taken."""
        return len(self._items) - self._next

    def start(self) -> None:
        """Start preparing the next item in the background, unless that has been done."""
        if self._executor is not None:
            self._submit(self._next)

    def prepare_now(self) -> None:
        """Prepare the next item in the calling thread, so that `take` does not wait.

        Raises:
            Exception: `prepare` raised it.
        """
        self._futures[self._next] = completed(self._prepare(self._items[self._next]))

    def take(self) -> R | None:
        """Return the next prepared item, waiting until it is ready.

        Raises:
            Exception: `prepare` raised it.
        """
        start = time.perf_counter()
        index = self._next
        if index not in self._futures:
            self.start()
        self._next += 1
        try:
            # the future is dropped here, so that its result lives no longer than the caller needs it
            future = self._futures.pop(index, None)
            return self._prepare(self._items[index]) if future is None else future.result()
        finally:
            self.waited = time.perf_counter() - start

    def _submit(self, index: int) -> None:
        assert self._executor is not None
        with self._lock:
            if self._next <= index < len(self._items) and index not in self._futures:
                self._futures[index] = self._executor.submit(self._run, index)

    def _run(self, index: int) -> R | None:
        prepared = self._prepare(self._items[index])
        if prepared is None:
            self._submit(index + 1)
        return prepared


class ResultWriter:
    """Runs calls that write results, in order, in one background thread with a bounded queue.

    Args:
        background: False runs each call in the calling thread.
    """

    def __init__(self, background: bool) -> None:
        self._executor = ThreadPoolExecutor(1, "results") if background else None
        self._pending: deque[Future[Any]] = deque()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call, first waiting while the queue is full."""
        if self._executor is None:
            return _run_now(call)
        while len(self._pending) >= MAX_PENDING_WRITES:
            self._pending.popleft().exception()
        future = self._executor.submit(call)
        self._pending.append(future)
        return future

    def close(self) -> None:
        """Wait for all calls to finish."""
        if self._executor is not None:
            self._executor.shutdown()


def _run_now(call: Callable[[], T]) -> Future[T]:
    """Run a call in this thread, and return its result or exception as a finished future."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future
