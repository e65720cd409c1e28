"""Threads that the process does not wait for when it ends."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(make: Callable[[], T]) -> "Future[T]":
    """What a thread of its own makes."""
    return side_by_side([make], 1)[0]


def side_by_side(calls: Sequence[Callable[[], T]], threads: int) -> "list[Future[T]]":
    """What so many threads make of the calls, which are begun in order."""
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
