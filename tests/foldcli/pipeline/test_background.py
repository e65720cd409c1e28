"""Tests of background threads: order, errors, and how much they hold in memory."""

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event, Thread

import pytest

from foldcli.pipeline.background import (
    MAX_PENDING_WRITES,
    Prefetcher,
    ResultWriter,
    completed,
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


@pytest.fixture(params=["background", "calling thread"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "background":
        with ThreadPoolExecutor(1) as pool:
            yield pool
    else:
        yield None


def test_prefetcher_returns_each_items_result_or_error(executor: Executor | None) -> None:
    def prepare(item: int) -> str:
        if item == 2:
            raise ValueError(f"item {item}")
        return str(item)

    prefetcher = Prefetcher([1, 2, 3, 4], prepare, executor)
    taken = []
    for item in (1, 2, 3, 4):
        if item == 2:
            with pytest.raises(ValueError, match="item 2"):
                prefetcher.take()
        else:
            taken.append(prefetcher.take())
        prefetcher.start()
    assert taken == ["1", "3", "4"] and prefetcher.remaining == 0


def wait_until_idle(pool: ThreadPoolExecutor) -> None:
    pool.submit(lambda: None).result()


def test_prefetcher_prepares_the_next_item_in_the_background_once_started() -> None:
    prepared = []

    def prepare(item: str) -> str:
        prepared.append((item, threading.current_thread()))
        return item

    with ThreadPoolExecutor(1) as pool:
        prefetcher = Prefetcher("abc", prepare, pool)
        assert prefetcher.take() == "a"
        wait_until_idle(pool)
        assert [item for item, _ in prepared] == ["a"]
        prefetcher.start()
        prefetcher.start()
        wait_until_idle(pool)
        assert [item for item, _ in prepared] == ["a", "b"]
        assert prepared[1][1] is not threading.current_thread()
        assert prefetcher.take() == "b" and [item for item, _ in prepared] == ["a", "b"]


def test_prefetcher_continues_past_items_that_need_no_work() -> None:
    prepared = []

    def prepare(item: int) -> int | None:
        prepared.append(item)
        return item or None

    with ThreadPoolExecutor(1) as pool:
        prefetcher = Prefetcher([0, 0, 0, 7, 8], prepare, pool)
        prefetcher.start()
        for _ in range(8):  # each lets the thread prepare one more item
            wait_until_idle(pool)
        assert prepared == [0, 0, 0, 7]
        assert [prefetcher.take() for _ in range(5)] == [None, None, None, 7, 8]
    assert prepared == [0, 0, 0, 7, 8]


class Item:
    """An object whose lifetime a weak reference can observe."""


def test_prefetcher_keeps_at_most_two_items_alive() -> None:
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    max_alive = 0

    def prepare(_: int) -> Item:
        nonlocal max_alive
        item = Item()
        alive.add(item)
        max_alive = max(max_alive, len(alive))
        return item

    with ThreadPoolExecutor(1) as pool:
        prefetcher = Prefetcher(range(6), prepare, pool)
        while prefetcher.remaining:
            item = prefetcher.take()
            prefetcher.start()
            wait_until_idle(pool)
            del item
    gc.collect()
    assert max_alive == 2 and len(alive) == 0


def test_writer_runs_calls_in_order_without_blocking_the_caller() -> None:
    writer, may_end, finished = ResultWriter(True), Event(), []
    first = writer.submit(lambda: (may_end.wait(60), finished.append("first")))
    second = writer.submit(lambda: finished.append("second"))
    assert not first.done() and not second.done()
    may_end.set()
    writer.close()
    assert finished == ["first", "second"] and second.done()


def test_writer_blocks_while_its_queue_is_full() -> None:
    writer, may_end = ResultWriter(True), Event()
    for _ in range(MAX_PENDING_WRITES):
        writer.submit(lambda: may_end.wait(60))
    last = Thread(target=lambda: writer.submit(lambda: None))
    last.start()
    last.join(0.1)
    assert last.is_alive()
    may_end.set()
    last.join(60)
    assert not last.is_alive()
    writer.close()


@pytest.mark.parametrize("background", [True, False])
def test_writer_continues_after_an_error(background: bool) -> None:
    writer = ResultWriter(background)

    def fail() -> None:
        raise OSError("no space left")

    failed, succeeded = writer.submit(fail), writer.submit(lambda: 3)
    writer.close()
    assert succeeded.result() == completed(3).result() == 3
    with pytest.raises(OSError, match="no space left"):
        failed.result()


def test_writer_without_thread_runs_at_once_and_passes_interrupts_on() -> None:
    writer = ResultWriter(False)
    assert writer.submit(lambda: 3).done()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.submit(interrupt)
