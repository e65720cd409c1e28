"""The process of one of several GPUs: a LocalWorker that serves the searching process.

It ends when the searching process closes its end of the socket, or ends itself. It ignores SIGINT and
SIGTERM, which the searching process handles: a server that is terminated finishes its searches first.
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

from msa.gpu.devices import open_gpu
from msa.gpu.interface import FilterLimits, GpuSettings
from msa.gpu.messages import SharedSequences, WorkerFailure, WorkerStatus, open_sequences
from msa.gpu.process_state import SWITCH_SECONDS, without_collection
from msa.search.engine import QueryProfile

if TYPE_CHECKING:
    from msa.gpu.local_worker import LocalAlignmentBatch, LocalWorker


def main() -> None:
    """Serve the socket whose file descriptor is the first argument; never returns."""
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)
    status = 1
    try:
        _Server(Connection(int(sys.argv[1]))).run()
        status = 0
    except BaseException:
        traceback.print_exc()
    # do not wait for other threads
    os._exit(status)


class _Server:
    """A server of requests, each of which names one of its public methods.

    Args:
        connection: to the searching process.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._worker: LocalWorker | None = None
        self._batches: dict[int, LocalAlignmentBatch] = {}
        self._cancelled = threading.Event()

    def run(self) -> None:
        """Answer requests until the other end is closed."""
        methods = (
            self.open, self.load, self.filter, self.alignment_batch, self.scores, self.paths, self.drain,
            self.release_unused,
        )  # fmt: skip
        by_name = {method.__name__: method for method in methods}
        while True:
            try:
                number, name, arguments = self._connection.recv()
            except (EOFError, ConnectionError):
                return
            try:
                result = by_name[name](*arguments)
            except Exception as error:
                self._send((number, True, WorkerFailure.from_exception(error), self._status))
            else:
                result.add_done_callback(partial(self._answer, number))

    def open(self, gpu: int, settings: GpuSettings, share: tuple[int, int]) -> "Future[Any]":
        """Open the GPU and return it; must be the first request."""
        # short queries have small launches, and numba would warn of every launch shape
        warnings.filterwarnings("ignore", message=".*GPU under-utilization due to low occupancy")
        sys.setswitchinterval(SWITCH_SECONDS)
        with without_collection():
            found = open_gpu(gpu)
            from msa.gpu.local_worker import LocalWorker  # imports numba, while the driver starts

        self._worker = LocalWorker(found, settings, self._report_compilation, share)
        opened: Future[Any] = Future()
        opened.set_result(found)
        return opened

    def load(self, targets: SharedSequences, part: tuple[int, int]) -> "Future[None]":
        """See GpuWorker.load."""
        return self._open_worker.load(open_sequences(targets), part)

    def filter(
        self, number: int, queries: Sequence[QueryProfile], limits: FilterLimits, more_follow: bool
    ) -> "Future[Any]":
        """Filter a batch and return the result; later requests refer to the batch by its number."""
        batch = self._open_worker.filter(queries, limits, more_follow, self._cancelled)
        self._batches[number] = batch
        return batch.best()

    def alignment_batch(
        self, number: int, queries: Sequence[QueryProfile], targets: SharedSequences
    ) -> "Future[None]":
        """Accept a batch to align to any targets."""
        self._batches[number] = self._open_worker.alignment_batch(queries, open_sequences(targets))
        accepted: Future[None] = Future()
        accepted.set_result(None)
        return accepted

    def scores(
        self,
        number: int,
        owners: np.ndarray,
        targets: np.ndarray,
        gap_costs: tuple[int, int],
        reverse: bool,
    ) -> "Future[Any]":
        """See AlignmentBatch.scores."""
        return self._batches[number].scores(owners, targets, gap_costs, reverse)

    def paths(self, number: int, selected: np.ndarray) -> "Future[Any]":
        """See AlignmentBatch.paths; the last request for a batch."""
        return self._batches.pop(number).paths(selected)

    def drain(self) -> "Future[None]":
        """See GpuWorker.drain."""
        self._cancelled.set()
        self._cancelled = threading.Event()
        self._batches.clear()
        return self._open_worker.drain()

    def release_unused(self) -> "Future[None]":
        """See GpuWorker.release_unused."""
        return self._open_worker.release_unused()

    @property
    def _open_worker(self) -> "LocalWorker":
        assert self._worker is not None
        return self._worker

    @property
    def _status(self) -> WorkerStatus:
        worker = self._worker
        return WorkerStatus(False, {}) if worker is None else WorkerStatus(worker.resident, worker.seconds)

    def _report_compilation(self, compiled: int, needed: int) -> None:
        self._send((None, compiled, needed))

    def _answer(self, number: int, done: "Future[Any]") -> None:
        error = done.exception()
        value = done.result() if error is None else WorkerFailure.from_exception(error)
        self._send((number, error is not None, value, self._status))

    def _send(self, message: tuple[Any, ...]) -> None:
        # `run` notices when the connection is closed
        with self._send_lock, contextlib.suppress(ConnectionError):
            self._connection.send(message)
