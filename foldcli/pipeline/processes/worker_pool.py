"""Worker processes of a run, which call functions; their messages are those of this process."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from foldcli.logs import logger
from foldcli.process_state import ONE_THREAD
from msa.base.services.pool import ServicePool

T = TypeVar("T")
R = TypeVar("R")

WORKER_OPTIONS: dict[str, Any] = {"logger": logger, "environment": ONE_THREAD}
"""Options of the services of a run: they send their messages, and limit libraries to one thread."""


class WorkerPool(ServicePool):
    """Processes of a run; see `ServicePool`."""

    def __init__(self, processes: int, warm_up: Callable[[], None] | None = None) -> None:
        super().__init__(processes, warm_up, **WORKER_OPTIONS)


@dataclass
class WorkResult(Generic[T, R]):
    """The result of one item of `map_in_processes`, or the error that it failed with.

    Args:
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
