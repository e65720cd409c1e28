"""Background threads: single calls, and iterators that run ahead of their consumer."""

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from queue import Empty, Full, Queue, SimpleQueue
from threading import BoundedSemaphore, Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# seconds between checks of a waiting thread whether it should end
_POLL_SECONDS = 0.2
# seconds that a thread has to finish its item after its consumer has ended
_GRACE_SECONDS = 2.0


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


class CallQueue:
    """A thread that makes calls in order, and that its context waits for.

    Args:
        limit: largest number of calls that wait or run; `submit` waits for fewer.
        on_error: called when an error ends the context, before it waits.
    """

    def __init__(self, limit: int, on_error: Callable[[], None] = lambda: None) -> None:
        self._on_error = on_error
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._free = BoundedSemaphore(limit)
        self._thread = Thread(target=self._work, name="calls", daemon=True)

    def __enter__(self) -> "CallQueue":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Wait until all calls are made."""
        if error[0] is not None:
            self._on_error()
        self._calls.put(None)
        self._thread.join()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; return its future result."""
        self._free.acquire()
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, future = item
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            finally:
                # freed before waiting for the next call
                del item, call, future
                self._free.release()


def run_ahead(items: Iterable[T], limit: int, stop: Event) -> Generator[T, None, None]:
    """Yield the items of an iterator that runs in a background thread, ahead of the consumer.

    If the consumer ends early, the iterator finishes its current item and is then closed.

    Args:
        items: consumed by the thread alone; its errors are raised here, after the items before them.
        limit: largest number of items that wait for the consumer, at least 1; one more may be in progress.
        stop: set to end this iterator and its thread; iterators that consume each other share it.
    """
    ready: Queue[tuple[T | None, BaseException | None, bool]] = Queue(limit)
    ended = Event()

    def put(item: T | None, error: BaseException | None, last: bool) -> None:
        while not (stop.is_set() or ended.is_set()):
            with contextlib.suppress(Full):
                ready.put((item, error, last), timeout=_POLL_SECONDS)
                return

    def work() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                put(item, None, False)
                del item  # so that it is freed as soon as the consumer drops it
                if stop.is_set() or ended.is_set():
                    break
        except BaseException as error:
            put(None, error, True)
        else:
            put(None, None, True)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    thread = Thread(target=work, name="ahead", daemon=True)
    thread.start()
    try:
        while not stop.is_set():
            try:
                item, error, last = ready.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if error is not None:
                raise error
            if last:
                return
            yield item  # type: ignore[misc]
            del item
    finally:
        ended.set()
        thread.join(_GRACE_SECONDS)


def map_ahead(
    function: Callable[[T], R], items: Iterable[T], limit: int, stop: Event
) -> Generator[R, None, None]:
    """Yield the results of a function for the items of an iterator, in order, ahead of the consumer.

    Args:
        function: called for several items at the same time, each in a thread of its own; its errors are
            raised here.
        items: consumed by one thread; see `run_ahead`.
        limit: see `run_ahead`; calls in progress count as items that wait.
        stop: see `run_ahead`.
    """
    futures = run_ahead((run_in_background(partial(function, item)) for item in items), limit, stop)
    try:
        for future in futures:
            while not wait([future], _POLL_SECONDS).done:
                if stop.is_set():
                    return
            yield future.result()
            del future
    finally:
        futures.close()


def map_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield the results of a function for items, in order, while further items are taken.

    Args:
        function: called in threads, which its context waits for; its errors are raised here.
        items: taken by the calling thread; their error is raised after the results of the items before it.
        threads: twice as many items may wait; 0 for the calling thread, one item at a time.
    """
    if not threads:
        yield from map(function, items)
        return
    iterator, error = iter(items), None
    pending: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads, "results")
    try:
        while error is None:
            try:
                pending.append(pool.submit(function, next(iterator)))
            except Exception as failure:
                error = failure
            while pending and (error is not None or pending[0].done() or len(pending) > 2 * threads):
                yield pending.popleft().result()
    finally:
        # a caller that is interrupted waits only for calls that have begun
        pool.shutdown(cancel_futures=True)
    if not isinstance(error, StopIteration):
        raise error
