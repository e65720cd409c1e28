"""Forked workers of a process that has loaded a compiler, which takes seconds."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from msa.base.services.process import end_with_parent


@contextlib.contextmanager
def forked_workers(count: int, niceness: int = 0) -> Iterator[ProcessPoolExecutor]:
    """Provide workers that leave the cores to others; they are killed if the block does not end normally.

    All of them are forked at the first call that is submitted; the process must hold no locks then.
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
    # the others are ignored as in the process of the service; while Python handles this one, a crash of LLVM
    # never ends, because its handler of SIGABRT is called again and again
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    os.nice(niceness)
