"""Chunks of work in threads: their sizes, and the end after an error."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msa.base.cpu_kernels.threads import chunks_of_equal_work, run_in_threads


@given(st.lists(st.integers(0, 50)), st.integers(1, 100))
def test_chunks_cover_all_items_and_have_the_requested_work(work: list[int], size: int) -> None:
    chunks = chunks_of_equal_work(np.array(work, np.int64), size)
    assert [k for first, end in chunks for k in range(first, end)] == list(range(len(work)))
    for first, end in chunks:
        # less than the requested work, plus one item that exceeds it
        assert first < end and sum(work[first : end - 1]) <= size


def test_chunks_that_have_not_started_are_dropped_after_an_error() -> None:
    started = []

    def fail_at_once(first: int, end: int) -> None:
        started.append(first)
        if first == 0:
            raise ValueError("failed")
        time.sleep(1)

    with pytest.raises(ValueError, match="failed"):
        run_in_threads(fail_at_once, [(k, k + 1) for k in range(10)], threads=2)
    # the other thread may start chunk 2 before the error arrives
    assert max(started) <= 2


def test_all_chunks_are_processed_and_progress_reaches_the_end() -> None:
    done, seen = np.zeros(50, int), []

    def work(first: int, end: int) -> None:
        time.sleep(0.02)
        done[first:end] += 1

    run_in_threads(work, [(k, k + 5) for k in range(0, 50, 5)], 3, lambda *counts: seen.append(counts))
    assert (done == 1).all()
    assert seen == sorted(seen) and seen[-1] == (50, 50)


def test_calls_from_several_threads_share_the_threads() -> None:
    def work(first: int, end: int) -> None:
        time.sleep(0.001)
        threads.add(threading.get_ident())

    threads: set[int] = set()
    chunks = [(k, k + 1) for k in range(20)]
    run_in_threads(work, chunks, 3)
    with ThreadPoolExecutor(4) as callers:
        list(callers.map(lambda _: run_in_threads(work, chunks, 3), range(8)))
    assert len(threads) <= 3


def test_a_forked_process_has_threads_of_its_own() -> None:
    both = threading.Barrier(2)

    def work(first: int, end: int) -> None:
        both.wait(120)

    run_in_threads(work, [(0, 1), (1, 2)], 2)
    child = os.fork()
    if not child:
        run_in_threads(work, [(0, 1), (1, 2)], 2)
        os._exit(0)
    deadline = time.monotonic() + 120
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
