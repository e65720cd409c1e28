"""Chunks of work in threads: their sizes, and the end after an error."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msa.cpu.threads import chunks_of_equal_work, run_in_threads


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
    # the thread of chunk 0 may start chunk 2 before the error arrives
    assert max(started) <= 2
