"""The threads of a simulated block, one of which runs at a time.

numba's simulator runs all threads of a block at once, and waits for their barriers in a busy loop, which
takes most of the time of kernels with shuffles. Here a thread runs until its next barrier, and then wakes the
next one. The order is reversed after each barrier, so that results which depend on it are noticed.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator import kernel


class BlockThread(kernel.BlockThread):
    """A thread that waits for its turn."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.turn = threading.Semaphore(0)

    def run(self) -> None:
        """Run the kernel once it is this thread's turn; an error ends the others at their next barrier."""
        self.turn.acquire()
        super().run()
        self._manager.end(self)

    def syncthreads(self) -> None:
        """Wait until all threads that still run have reached a barrier."""
        self._manager.wait(self)
        if self.abort:
            raise RuntimeError("another thread of the block has failed")


class BlockManager:
    """Runs a block; has the interface of the simulator's own class."""

    def __init__(
        self, function: Callable[..., None], grid_dim: Any, block_dim: tuple[int, ...], debug: bool
    ) -> None:
        self._function, self._block_dim, self._debug = function, block_dim, debug
        self.block_state = np.zeros(block_dim, dtype=np.bool_)
        self._threads: list[BlockThread] = []
        self._ready: list[BlockThread] = []
        self._waiting: list[BlockThread] = []
        self._error: BaseException | None = None

    def run(self, grid_point: tuple[int, ...], *arguments: Any) -> None:
        """Run the block, and raise the error of the first thread that has failed."""
        self._threads = [
            BlockThread(lambda: self._function(*arguments), self, grid_point, point, self._debug)
            for point in np.ndindex(*self._block_dim)
        ]
        for thread in self._threads:
            thread.start()
        self._ready = self._threads[::-1]
        self._wake(self._next())
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def wait(self, thread: BlockThread) -> None:
        """Let the other threads run until they have reached a barrier or their end."""
        self._waiting.append(thread)
        following = self._next()
        if following is not thread:
            self._wake(following)
            thread.turn.acquire()

    def end(self, thread: BlockThread) -> None:
        """Continue with the next thread after the end of one."""
        if thread.exception is not None and self._error is None:
            self._error = thread.exception[0].with_traceback(thread.exception[1])
            for other in self._threads:
                other.abort = True
        self._wake(self._next())

    def _next(self) -> BlockThread | None:
        """Return the thread whose turn it is; None if all have ended."""
        if not self._ready:
            self._ready, self._waiting = self._waiting, []
        return self._ready.pop() if self._ready else None

    @staticmethod
    def _wake(thread: BlockThread | None) -> None:
        if thread is not None:
            thread.turn.release()


def install() -> None:
    """Use these threads for all kernels that the simulator runs in this process."""
    kernel.BlockManager = BlockManager
