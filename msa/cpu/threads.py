"""Processing of a database in chunks on several threads.

Kernels release the GIL, so that plain Python threads keep all cores busy. Unlike an OpenMP pool, they do not
compete with torch's threads, free threads take the next chunk, and interrupts are handled between chunks.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice

import numpy as np

from msa.progress import Progress


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
        function: called with the first item and the end of a chunk; should release the GIL.
        chunks: started in order.
        threads: at least 1.
        progress: called in the calling thread with the number of items done and of all items.

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
    remaining = iter(chunks)
    done = 0
    with ThreadPoolExecutor(min(threads, len(chunks))) as pool:
        # queue only a few chunks at a time, so that leaving this block early waits only for running chunks
        running = {pool.submit(function, *chunk): chunk for chunk in islice(remaining, 2 * threads)}
        try:
            while running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    first, end = running.pop(future)
                    future.result()
                    done += end - first
                    running.update({pool.submit(function, *chunk): chunk for chunk in islice(remaining, 1)})
                if progress is not None:
                    progress(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
