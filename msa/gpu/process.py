"""The process of one GPU of several: a worker that does what the process of the search asks for.

It ends when the other end of its socket is closed, however that comes about. Signals that are meant for a
whole group of processes are for the process of the search to answer: a server that is told to end finishes
its searches first.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from msa.gpu.compiling import Compiling
from msa.gpu.limits import Limits
from msa.gpu.opening import open_gpu, without_collection
from msa.gpu.settings import TURN_SECONDS, GpuSettings
from msa.gpu.wire import Database, Failure, Status
from msa.search.engine import QueryProfile

if TYPE_CHECKING:
    from msa.gpu.worker import LocalAligning, Worker


def main() -> None:
    """Serve the socket whose number is the first argument; never returns."""
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)
    status = 1
    try:
        _Service(Connection(int(sys.argv[1]))).run()
        status = 0
    except BaseException:
        traceback.print_exc()
    # what other threads still do is nobody's concern any more
    os._exit(status)


class _Service:
    """Answers requests.

    Args:
        connection: to the process of the search.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._worker: Worker | None = None
        self._batches: dict[int, LocalAligning] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until the other end is closed."""
        answers = (
            self.open, self.hold, self.filter, self.aligning, self.scores, self.paths, self.drain, self.rest,
        )  # fmt: skip
        asked = {each.__name__: each for each in answers}
        while True:
            try:
                number, name, arguments = self._connection.recv()
            except (EOFError, ConnectionError):
                return
            try:
                done = asked[name](*arguments)
            except Exception as error:
                self._send((number, True, Failure.of(error), self._status))
            else:
                done.add_done_callback(partial(self._answer, number))

    def open(self, gpu: int, settings: GpuSettings, share: tuple[int, int]) -> "Future[Any]":
        """Open the GPU, which is the answer; first of all requests."""
        # a short query's alignment is a small launch, which numba warns of at every shape
        warnings.filterwarnings("ignore", message=".*GPU under-utilization due to low occupancy")
        sys.setswitchinterval(TURN_SECONDS)
        with without_collection():
            found = open_gpu(gpu)
            from msa.gpu.worker import Worker

        compiling = Compiling(settings.kernels, self._compiling, share)
        self._worker = Worker(found, settings, compiling)
        opened: Future[Any] = Future()
        opened.set_result(found)
        return opened

    def hold(self, database: Database, part: tuple[int, int]) -> "Future[None]":
        """See Member.hold."""
        return self._open.hold(database.open(), part)

    def filter(
        self, number: int, queries: Sequence[QueryProfile], limits: Limits, again: bool
    ) -> "Future[Any]":
        """What the filter finds for a batch, which goes by its number from here on."""
        self._batches[number] = batch = self._open.filter(queries, limits, again, self._stopped)
        return batch.best()

    def aligning(self, number: int, queries: Sequence[QueryProfile], database: Database) -> "Future[None]":
        """Take a batch for other targets than those held."""
        self._batches[number] = self._open.aligning(queries, database.open())
        taken: Future[None] = Future()
        taken.set_result(None)
        return taken

    def scores(
        self, number: int, owners: np.ndarray, places: np.ndarray, gaps: tuple[int, int], reverse: bool
    ) -> "Future[Any]":
        """See Batch.scores."""
        return self._batches[number].scores(owners, places, gaps, reverse)

    def paths(self, number: int, kept: np.ndarray) -> "Future[Any]":
        """See Batch.paths; the last that is asked of a batch."""
        return self._batches.pop(number).paths(kept)

    def drain(self) -> "Future[None]":
        """See Member.drain."""
        self._stopped.set()
        self._stopped = threading.Event()
        self._batches.clear()
        return self._open.drain()

    def rest(self) -> "Future[None]":
        """See Member.rest."""
        return self._open.rest()

    @property
    def _open(self) -> "Worker":
        assert self._worker is not None
        return self._worker

    @property
    def _status(self) -> Status:
        worker = self._worker
        return Status(False, {}) if worker is None else Status(worker.stays, worker.seconds)

    def _compiling(self, done: int, needed: int) -> None:
        self._send((None, done, needed))

    def _answer(self, number: int, done: "Future[Any]") -> None:
        error = done.exception()
        value = done.result() if error is None else Failure.of(error)
        self._send((number, error is not None, value, self._status))

    def _send(self, message: tuple[Any, ...]) -> None:
        # the reader finds out that nobody listens any more
        with self._sending, contextlib.suppress(ConnectionError):
            self._connection.send(message)
