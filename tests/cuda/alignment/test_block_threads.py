"""Tests of the threads of simulated blocks: barriers, early ends, the order of threads, and errors."""

import numpy as np
import pytest
from numba import cuda

from tests.cuda.alignment import block_threads

pytestmark = pytest.mark.simulator


def test_barriers_separate_writes_from_reads() -> None:
    @cuda.jit
    def rotate(values):  # type: ignore[no-untyped-def]
        k = cuda.threadIdx.x
        shared = cuda.shared.array(8, np.int32)
        for _ in range(3):
            shared[k] = values[k]
            cuda.syncthreads()
            values[k] = shared[(k + 1) % 8]
            cuda.syncthreads()

    values = cuda.to_device(np.arange(8))
    rotate[1, 8](values)
    assert values.copy_to_host().tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


def test_barriers_wait_only_for_threads_that_still_run() -> None:
    @cuda.jit
    def count(found):  # type: ignore[no-untyped-def]
        k = cuda.threadIdx.x
        for _ in range(k):
            cuda.syncthreads()
            found[k] += 1

    found = cuda.to_device(np.zeros(5, np.int32))
    count[1, 5](found)
    assert found.copy_to_host().tolist() == [0, 1, 2, 3, 4]


def test_order_of_threads_is_reversed_after_each_barrier() -> None:
    order: list[int] = []

    @cuda.jit
    def record():  # type: ignore[no-untyped-def]
        order.append(cuda.threadIdx.x)
        cuda.syncthreads()
        order.append(cuda.threadIdx.x)

    record[1, 3]()
    assert order == [0, 1, 2, 2, 1, 0]


def test_error_of_a_thread_ends_the_others() -> None:
    @cuda.jit
    def fail():  # type: ignore[no-untyped-def]
        if cuda.threadIdx.x == 1:
            raise ValueError("no value")
        while True:
            cuda.syncthreads()

    with pytest.raises(ValueError, match=r"tid=\[1, 0, 0\] ctaid=\[0, 0, 0\]: no value"):
        fail[1, 4]()


def test_all_tests_in_the_simulator_use_these_threads() -> None:
    from numba.cuda.simulator import kernel

    assert kernel.BlockManager is block_threads.BlockManager
