"""Tests of background threads: order, errors, the limit of running ahead, and the end of threads."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from threading import Event

import pytest

from foldcli.pipeline.processes.background import (
    CallQueue,
    map_ahead,
    map_in_threads,
    run_ahead,
    run_concurrently,
    run_in_background,
)


def test_background_calls_return_results_and_errors() -> None:
    assert run_in_background(lambda: 5).result() == 5
    assert isinstance(run_in_background(lambda: 1 // 0).exception(), ZeroDivisionError)
    futures = run_concurrently([lambda n=n: 6 // n for n in (1, 0, 2, 3)], 2)  # type: ignore[misc]
    assert isinstance(futures[1].exception(), ZeroDivisionError)
    assert [futures[k].result() for k in (0, 2, 3)] == [6, 3, 2]
    assert run_concurrently([], 2) == []


def test_queued_calls_are_made_in_order_and_waited_for() -> None:
    finished_calls: list[int] = []
    release = Event()
    with CallQueue(2) as queue:
        futures = [queue.submit(release.wait), queue.submit(lambda: 1 // 0)]
        # the third call waits until the first is made
        blocked = run_in_background(lambda: queue.submit(lambda: finished_calls.append(2)))
        time.sleep(0.05)
        assert not blocked.done() and not futures[0].done()
        release.set()
        blocked.result()
        for number in range(3, 6):
            queue.submit(lambda number=number: finished_calls.append(number))  # type: ignore[misc]
    assert finished_calls == [2, 3, 4, 5]
    assert futures[0].result() and isinstance(futures[1].exception(), ZeroDivisionError)


def wait_for(condition: object) -> None:
    """Wait until a function returns a true value."""
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_items_keep_their_order_and_come_from_another_thread() -> None:
    def items() -> Iterator[tuple[int, int]]:
        for k in range(5):
            yield k, threading.get_ident()

    taken = list(run_ahead(items(), 1, Event()))
    assert [k for k, _ in taken] == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in taken}


def test_results_of_several_threads_keep_the_order_of_the_items() -> None:
    release, made = Event(), list[int]()

    def work(k: int) -> int:
        if k == 0:
            release.wait(20)
        made.append(k)
        return 10 * k

    results = map_ahead(work, iter(range(8)), 2, Event())
    threading.Timer(0.3, release.set).start()
    assert list(results) == [0, 10, 20, 30, 40, 50, 60, 70]
    # as many as may wait were made before the first
    assert 0 in made[1:4] and sorted(made) == list(range(8))
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda k: 1 // k, [1, 0], 2, Event()))
    (stop := Event()).set()
    assert list(map_ahead(work, [1], 1, stop)) == []


def test_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("second")

    ahead = run_ahead(items(), 5, Event())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="second"):
        next(ahead)


def test_thread_runs_ahead_by_no_more_than_the_limit() -> None:
    produced = []

    def items() -> Iterator[int]:
        for k in range(10):
            produced.append(k)
            yield k

    ahead = run_ahead(items(), 2, Event())
    assert next(ahead) == 0
    # one was taken, two are ready, and one is waiting to be put
    wait_for(lambda: len(produced) == 4)
    time.sleep(0.1)
    assert produced == [0, 1, 2, 3]
    assert next(ahead) == 1
    wait_for(lambda: len(produced) == 5)
    ahead.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", ["consumer", "stop"])
def test_iterator_is_closed_when_its_consumer_ends(by: str) -> None:
    closed, stop = Event(), Event()

    def items() -> Iterator[int]:
        try:
            k = 0
            while True:
                yield (k := k + 1)
        finally:
            closed.set()

    ahead = run_ahead(items(), 1, stop)
    assert next(ahead) == 1
    if by == "consumer":
        ahead.close()  # type: ignore[attr-defined]
    else:
        stop.set()
        assert next(ahead, None) is None
    assert closed.wait(20)


def test_chain_of_iterators_ends_although_the_inner_one_waits() -> None:
    never, stop = Event(), Event()

    def inner() -> Iterator[int]:
        yield 1
        never.wait(20)

    outer = run_ahead((k for k in run_ahead(inner(), 1, stop)), 1, stop)
    assert next(outer) == 1
    stop.set()
    begun = time.monotonic()
    assert next(outer, None) is None
    never.set()
    assert time.monotonic() - begun < 10


class Big:
    """An object that allows weak references, which show when it is freed."""


def test_item_is_freed_when_the_consumer_drops_it() -> None:
    def items() -> Iterator[Big]:
        for _ in range(2):
            yield Big()

    ahead = run_ahead(items(), 1, Event())
    first = next(ahead)
    alive = weakref.ref(first)
    del first
    next(ahead)
    gc.collect()
    assert alive() is None


def test_results_of_threads_come_in_order_and_before_the_error_of_the_items() -> None:
    second_taken = Event()

    def items() -> Iterator[int]:
        yield 6
        second_taken.set()
        yield 3
        yield 0
        raise KeyError

    def divide(number: int) -> int:
        # would wait in vain if the second item were taken after the first result
        assert second_taken.wait(10)
        return 6 // number

    results = map_in_threads(divide, items(), 2)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(results)
    results = map_in_threads(divide, (number or 1 for number in items()), 2)
    assert [next(results) for _ in range(3)] == [1, 2, 6]
    with pytest.raises(KeyError):
        next(results)
    assert list(map_in_threads(divide, [], 2)) == []


def test_mapped_calls_that_have_not_begun_are_dropped_at_an_interrupt() -> None:
    begun: list[int] = []

    def items() -> Iterator[int]:
        yield from range(5)
        raise KeyboardInterrupt

    def call(number: int) -> None:
        begun.append(number)
        time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        list(map_in_threads(call, items(), 2))
    assert len(begun) < 5
