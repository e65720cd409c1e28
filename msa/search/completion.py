"""Background tasks in the order in which they are completed, while a thread starts further ones."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar


class Task(Protocol):
    """Something that a future belongs to."""

    @property
    def future(self) -> "Future[Any]":
        """The future."""


T = TypeVar("T", bound=Task)


def in_order_of_completion(started: Sequence[T], others: Iterable[T]) -> Iterator[T]:
    """Yield tasks as soon as their futures are done.

    Args:
        started: the first tasks.
        others: further tasks, which start when they are taken; a thread takes all of them. An error of this
            iterable is raised here.
    """
    completed: SimpleQueue[T | None] = SimpleQueue()

    def watch(task: T) -> None:
        task.future.add_done_callback(lambda done: completed.put(task))

    def start_others() -> int:
        count = 0
        for task in others:
            watch(task)
            count += 1
        return count

    thread = ThreadPoolExecutor(1, "last results")
    try:
        for task in started:
            watch(task)
        num_others = thread.submit(start_others)
        num_others.add_done_callback(lambda done: completed.put(None))
        remaining, all_started = len(started), False
        # negative as long as tasks are completed of which the number is not known
        while remaining or not all_started:
            found = completed.get()
            if found is None:
                remaining, all_started = remaining + num_others.result(), True
            else:
                remaining -= 1
                yield found
    finally:
        thread.shutdown()
