"""Processing of a database in chunks on several threads.

Kernels release the GIL, so that plain Python threads keep all cores busy. Unlike an OpenMP pool, they do not
compete with torch's threads, free threads take the next chunk, and interrupts are handled between chunks. The
threads stay, because new ones would have to get memory from the system for every call.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np

from msa.base.progress import Progress

_PROGRESS_SECONDS = 0.1


def chunks_of_equal_work(work: np.ndarray, chunk_size: int) -> list[tuple[int, int]]:
    """Split consecutive items into chunks of about equal work.

    Args:
        work: int [n], units of work per item.
        chunk_size: units of work per chunk; a larger item is a chunk of its own.

    Returns:
        First item and end of each chunk, in order; no chunk is empty.
    """
    total = np.cumsum(work, dtype=np.int64)
    if not len(total):
        return []
    marks = np.arange(chunk_size, int(total[-1]) + chunk_size, chunk_size)
    ends = np.unique(np.minimum(np.searchsorted(total, marks, side="left") + 1, len(total)))
    ends = np.unique(np.append(ends, len(total)))
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))


def run_in_threads(
    function: Callable[[int, int], object],
    chunks: Sequence[tuple[int, int]],
    threads: int,
    progress: Progress | None = None,
) -> None:
    """Call `function(first, end)` for every chunk, on several threads.

    Args:
        function: called with the first item and the end of a chunk; should release the GIL, and must not
            call this function.
        chunks: started in order.
        threads: at least 1.
        progress: called in the calling thread with the number of items done and of all items, from time to
            time and at the end.

    Raises:
        BaseException: the first exception raised by `function`, or KeyboardInterrupt; chunks that have not
            started are dropped.
    """
    total = max((end for _, end in chunks), default=0)
    if threads == 1 or len(chunks) <= 1:
        for first, end in chunks:
            function(first, end)
            if progress is not None:
                progress(end, total)
        return
    remaining, stopped = iter(chunks), threading.Event()
    done: list[int] = []

    def work() -> None:
        # each thread takes the next chunk itself: to wake another one for every chunk takes longer
        for first, end in remaining:
            if stopped.is_set():
                return
            function(first, end)
            done.append(end - first)

    pool = _pool(threads)
    workers = [pool.submit(work) for _ in range(min(threads, len(chunks)))]
    try:
        while True:
            finished, unfinished = wait(workers, _PROGRESS_SECONDS, FIRST_EXCEPTION)
            for future in finished:
                future.result()
            if progress is not None:
                progress(sum(done), total)
            if not unfinished:
                break
    finally:
        stopped.set()
        wait(workers)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "kernels")


# a forked process has no threads
os.register_at_fork(after_in_child=_pool.cache_clear)
