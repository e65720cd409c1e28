"""Targets that the threads of several devices share: taken once each, given back, and errors."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from foldcli.pipeline.runs.several_devices import SharedTargets, share_targets
from msa.base.errors import MissingError


class Target:
    """A target without files."""

    def __init__(self, number: int) -> None:
        self.number = number


class FaultyWorker:
    """A worker that becomes unusable after some targets."""

    def __init__(self, good: int) -> None:
        self.left, self.closed = good, False
        self.done: list[int] = []

    @property
    def usable(self) -> bool:
        return self.left > 0

    def terminate(self) -> None:
        self.left = 0

    def close(self) -> None:
        self.closed = True


def share(workers: list[Any], count: int, stop: Event, fault: BaseException | None = None) -> None:
    targets: Any = [Target(number) for number in range(count)]
    shared: Any = SharedTargets(iter(targets), iter)

    def run(worker: Any) -> None:
        for target in shared:
            if not worker.usable:
                shared.give_back(target)
                return
            if fault is not None:
                raise fault
            worker.left -= 1
            worker.done.append(target.number)  # type: ignore[attr-defined]

    share_targets(workers, shared, run, stop)


def test_targets_are_shared_and_given_back() -> None:
    workers = [FaultyWorker(3), FaultyWorker(100)]
    share(workers, 20, Event())
    assert sorted(workers[0].done + workers[1].done) == list(range(20))
    assert all(worker.closed for worker in workers)


def test_last_worker_that_fails_ends_the_run() -> None:
    workers = [FaultyWorker(3), FaultyWorker(4)]
    with pytest.raises(MissingError):
        share(workers, 20, Event())
    assert sorted(workers[0].done + workers[1].done) == list(range(7))


def test_error_in_one_thread_ends_all_workers() -> None:
    workers, stop = [FaultyWorker(3), FaultyWorker(4)], Event()
    with pytest.raises(ZeroDivisionError):
        share(workers, 20, stop, ZeroDivisionError())
    assert stop.is_set() and not any(worker.usable for worker in workers)


def test_targets_that_are_given_back_come_before_those_that_are_not_taken() -> None:
    targets: Any = SharedTargets(iter(range(4)), iter)
    taken = iter(targets)
    assert [next(taken), next(taken)] == [0, 1] and not targets
    targets.give_back(1)
    assert targets and next(taken) == 1 and not targets
    assert list(taken) == [2, 3]


def test_targets_that_are_given_back_at_the_end_are_prepared_again() -> None:
    begun: list[Any] = []

    def prepare(targets: Iterator[Any]) -> Iterator[Any]:
        for target in targets:
            begun.append(target)
            yield target

    targets: Any = SharedTargets(iter("ab"), prepare)
    assert list(targets) == ["a", "b"]
    targets.give_back("a")
    assert list(targets) == ["a"] and begun == ["a", "b", "a"]
    assert not list(targets)
