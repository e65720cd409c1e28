"""The order of a run's targets, and the queue from which the workers of several devices take the next one."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from functools import partial
from threading import Event, Lock
from typing import Any, Generic, TypeVar

from foldcli.inputs.targets import approximate_length
from foldcli.pipeline.network.device_workers import DeviceWorker
from foldcli.pipeline.processes.background import run_concurrently
from foldcli.pipeline.targets.alignment_settings import FIRST_BATCH
from foldcli.pipeline.targets.target import TargetRun
from msa.base.errors import MissingError

T = TypeVar("T")
Input = TypeVar("Input", bound=Any)

# short targets come first if they are at most this share of the targets
_FIRST_SHARE = 0.25

# seconds that the threads of interrupted workers have to end
_GRACE_SECONDS = 15.0


def in_run_order(
    targets: Sequence[tuple[str, Input]], at_once: int = 1, size: Callable[[Input], int] = approximate_length
) -> list[tuple[str, Input]]:
    """Return targets in the order in which they run: of many, a few short ones first; then the longest first.

    Memory that was allocated for one target suffices for the next, and targets that end a run on several
    devices are short. The first ones are short because their alignments and features are ready soon: the
    network works on them while those of the longest targets are made.

    Args:
        targets: names and inputs of a run's targets.
        at_once: number of targets that are predicted at the same time.
        size: returns a number that grows with the size of a target.
    """
    longest_first = sorted(targets, key=lambda target: -size(target[1]))
    count = FIRST_BATCH * at_once
    if _FIRST_SHARE * len(targets) < count:
        return longest_first
    return [*reversed(longest_first[-count:]), *longest_first[:-count]]


class SharedTargets:
    """Targets that several threads take from one iterator; iterating takes the next ones.

    Args:
        targets: the targets, in the order in which they are taken.
    """

    def __init__(self, targets: Iterator[TargetRun]) -> None:
        self._targets, self._lock = targets, Lock()
        self._returned: deque[TargetRun] = deque()

    def __iter__(self) -> Iterator[TargetRun]:
        while True:
            with self._lock:
                target = self._returned.popleft() if self._returned else next(self._targets, None)
            if target is None:
                return
            yield target

    def give_back(self, target: TargetRun) -> None:
        """Return a target that was taken, so that another thread takes it."""
        with self._lock:
            self._returned.append(target)

    def __bool__(self) -> bool:
        """Return True if targets have been given back and not taken again."""
        return bool(self._returned)


def no_usable_worker() -> MissingError:
    """Return the error of a run that has targets and no usable worker left."""
    return MissingError(
        "the workers of all devices have ended twice",
        "See the messages above; run the same command again to continue.",
    )


class SharedIterator(Generic[T]):
    """An iterator that several threads consume; each takes the next item when it needs one.

    Args:
        begin: returns the iterator; called again when it is exhausted, because targets may be given back.
    """

    def __init__(self, begin: Callable[[], Iterator[T]]) -> None:
        self._begin, self._lock = begin, Lock()
        self._items = begin()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._lock:
                if (item := next(self._items, None)) is None:
                    self._items = self._begin()
                    item = next(self._items, None)
            if item is None:
                return
            yield item
            del item


def share_targets(
    workers: Sequence[DeviceWorker],
    targets: SharedTargets,
    run: Callable[[DeviceWorker, SharedTargets], None],
    stop: Event,
) -> None:
    """Run all targets on several workers, each of which takes the next target when it is free.

    Args:
        workers: ended when the function returns.
        targets: the targets.
        run: called in a thread for each worker; runs targets until there are none, or the worker is not
            usable, and gives back those that it has taken in vain.
        stop: set if the run is interrupted.

    Raises:
        MissingError: there are targets left, and no worker is usable.
    """
    try:
        while True:
            usable = [worker for worker in workers if worker.usable]
            if not usable:
                raise no_usable_worker()
            threads = run_concurrently([partial(run, worker, targets) for worker in usable], len(usable))
            try:
                for thread in threads:
                    thread.result()
            except BaseException:
                stop.set()
                for worker in workers:
                    worker.terminate()
                wait(threads, timeout=_GRACE_SECONDS)
                raise
            if not targets:
                return
    finally:
        for closing in run_concurrently([worker.close for worker in workers], len(workers)):
            with contextlib.suppress(OSError):
                closing.result()
