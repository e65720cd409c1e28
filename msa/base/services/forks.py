"""Forked workers of a process that has loaded a compiler, which takes seconds."""

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from msa.base.services.process import end_with_parent


@contextlib.contextmanager
def forked_workers(count: int, niceness: int = 0) -> Iterator[ProcessPoolExecutor]:
    """Provide workers that leave the cores to others; they are killed if the block does not end normally.

    All of them are forked at the first call that is submitted; the process must hold no locks then.

    Args:
        count: number of workers.
        niceness: added to theirs.
    """
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(count, context, _set_up, (niceness,)) as pool:
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _set_up(niceness: int) -> None:
    # signals are ignored as in the process of the service
    end_with_parent()
    os.nice(niceness)
