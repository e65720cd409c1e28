"""Background threads: single calls, and iterators that run ahead of their consumer."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from queue import Empty, Full, Queue, SimpleQueue
from threading import BoundedSemaphore, Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")

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
    """

    def __init__(self, limit: int) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._free = BoundedSemaphore(limit)
        self._thread = Thread(target=self._work, name="calls", daemon=True)

    def __enter__(self) -> "CallQueue":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Wait until all calls are made."""
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
    return run_several_ahead([items], limit, stop)


def run_several_ahead(sources: Sequence[Iterable[T]], limit: int, stop: Event) -> Generator[T, None, None]:
    """Yield the items of several iterators as they become ready, each from its own thread; see `run_ahead`.

    Args:
        sources: the iterators, each consumed by one thread.
        limit: largest number of items that wait for the consumer; each thread may have one more.
        stop: see `run_ahead`.
    """
    ready: Queue[tuple[T | None, BaseException | None, bool]] = Queue(limit)
    ended = Event()

    def put(item: T | None, error: BaseException | None, last: bool) -> None:
        while not (stop.is_set() or ended.is_set()):
            with contextlib.suppress(Full):
                ready.put((item, error, last), timeout=_POLL_SECONDS)
                return

    def work(items: Iterable[T]) -> None:
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

    threads = [Thread(target=work, args=(items,), name="ahead", daemon=True) for items in sources]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running and not stop.is_set():
            try:
                item, error, last = ready.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if error is not None:
                raise error
            if last:
                running -= 1
                continue
            yield item  # type: ignore[misc]
            del item
    finally:
        ended.set()
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
