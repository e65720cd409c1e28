"""Threads over pieces of a database.

Kernels release the GIL, so plain Python threads keep the cores busy: no OpenMP pool that would fight with
torch's, pieces are handed out as cores fall free, and between pieces an interrupt gets its turn.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice

import numpy as np

Progress = Callable[[int, int | None], None]


def pieces_of_equal_work(work: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Cut consecutive items into pieces of about `size` units of work.

    Args:
        work: int [n], units per item.
        size: units per piece; an item larger than that is a piece of its own.

    Returns:
        (first, end) of each piece, in order; none is empty.
    """
    total = np.cumsum(work, dtype=np.int64)
    if not len(total):
        return []
    marks = np.arange(size, int(total[-1]) + size, size)
    ends = np.unique(np.minimum(np.searchsorted(total, marks, side="left") + 1, len(total)))
    ends = np.unique(np.append(ends, len(total)))
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))


def run_pieces(
    work: Callable[[int, int], object],
    pieces: Sequence[tuple[int, int]],
    threads: int,
    progress: Progress | None = None,
) -> None:
    """Call `work(first, end)` for every piece on a number of threads.

    Args:
        work: must release the GIL for the threads to be of use.
        pieces: handed out in order.
        threads: at least 1.
        progress: called in the calling thread with items done and items in all.

    Raises:
        BaseException: the first that `work` raised, or KeyboardInterrupt; pieces not begun are left undone.
    """
    total = max((end for _, end in pieces), default=0)
    if threads == 1 or len(pieces) <= 1:
        for first, end in pieces:
            work(first, end)
            if progress is not None:
                progress(end, total)
        return
    left = iter(pieces)
    done = 0
    with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
        # few are queued at a time, so that leaving this block early waits for those under way only
        running = {pool.submit(work, *piece): piece for piece in islice(left, 2 * threads)}
        try:
            while running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    first, end = running.pop(future)
                    future.result()
                    done += end - first
                    running.update({pool.submit(work, *piece): piece for piece in islice(left, 1)})
                if progress is not None:
                    progress(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
