"""Background tasks in the order of their completion."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from msa.search.iterations import in_order_of_completion


@dataclass(frozen=True)
class Task:
    name: str
    future: "Future[object]" = field(default_factory=Future)


def done(name: str) -> Task:
    task = Task(name)
    task.future.set_result(None)
    return task


def test_tasks_come_in_the_order_of_their_completion() -> None:
    first, second, third = tasks = [Task(name) for name in "abc"]
    found = in_order_of_completion(tasks[:2], tasks[2:])
    order = []
    for task in (third, first, second):
        task.future.set_result(None)
        order.append(next(found).name)
    assert order == ["c", "a", "b"] and not list(found)


@pytest.mark.parametrize("num_started", [0, 3])
def test_others_start_while_the_first_are_running(num_started: int) -> None:
    running, taken = Task("running"), threading.Event()

    def others() -> Iterator[Task]:
        yield done("x")
        yield done("y")
        taken.set()
        yield running

    started = [done(str(k)) for k in range(num_started)]
    found = in_order_of_completion(started, others())
    assert sorted(next(found).name for _ in range(num_started + 2)) == sorted([*"012"[:num_started], *"xy"])
    assert taken.wait(60)
    running.future.set_result(None)
    assert [task.name for task in found] == ["running"]
    assert not list(in_order_of_completion([], []))


def test_errors_of_others_are_raised_and_no_thread_remains() -> None:
    def others() -> Iterator[Task]:
        yield done("x")
        raise RuntimeError("the GPU has been lost")

    found = in_order_of_completion([done("a")], others())
    assert sorted([next(found).name, next(found).name]) == ["a", "x"]
    with pytest.raises(RuntimeError, match="has been lost"):
        next(found)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("last results")]
