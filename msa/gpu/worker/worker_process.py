"""The process of one of several GPUs: a LocalWorker that serves the searching process.

It ends when the searching process closes its end of the socket, or ends itself. It ignores SIGINT and
SIGTERM, which the searching process handles: a server that is terminated finishes its searches first.
On a second socket, a process that scores candidates may request alignments.

Both processes use the same installation and exchange pickled messages. Requests are (number, method name,
arguments). Answers are (number, failed, value, WorkerStatus). Progress of compilation is (None, compiled,
needed). An array that is mapped from a file is sent as a MappedArray, any other array as it is.
"""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msa.base.child_process import ignore_stop_signals
from msa.base.errors import OutOfGpuMemory
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.query_profile import QueryProfile
from msa.engines.settings import SearchSettings
from msa.gpu.device.devices import GpuUnavailable, find_gpu
from msa.gpu.device.process_state import SWITCH_SECONDS
from msa.gpu.worker.interface import GpuSettings

if TYPE_CHECKING:
    from msa.gpu.worker.local_worker import LocalAlignmentBatch, LocalWorker


@dataclass(frozen=True)
class WorkerStatus:
    """State of a GPU's process, sent with every answer; see GpuWorker for its fields."""

    resident: bool
    seconds: dict[str, float]


@dataclass(frozen=True)
class MappedArray:
    """A one-dimensional array that is mapped read-only from a file.

    Args:
        path: the file.
        dtype: numpy dtype string.
        offset: position of the first element in the file, in bytes.
        count: number of elements.
    """

    path: Path
    dtype: str
    offset: int
    count: int

    @classmethod
    def from_array(cls, array: np.ndarray) -> "MappedArray | None":
        """Locate an array [n] in the file from which it is mapped; return None if it is not mapped."""
        base: object = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or base.mode != "r":
            return None
        before = array.ctypes.data - base.ctypes.data
        return cls(Path(base.filename), array.dtype.str, base.offset + before, len(array))

    def open(self) -> np.ndarray:
        """Map the array again.

        Raises:
            OSError: if the file no longer exists.
            ValueError: if it has become shorter.
        """
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.count,))


SharedSequences = tuple[MappedArray | np.ndarray, ...]
"""The three arrays of SequenceArrays, in a form that another process of this machine can open."""


def share_sequences(sequences: SequenceArrays) -> SharedSequences:
    """Describe sequences for another process of this machine, without copying mapped arrays."""
    arrays = sequences.residues, sequences.offsets, sequences.lengths
    return tuple(MappedArray.from_array(array) or array for array in arrays)


def open_sequences(shared: SharedSequences, mapped: dict[MappedArray, np.ndarray]) -> SequenceArrays:
    """Open sequences that another process has shared; raises like MappedArray.open.

    Args:
        shared: the sequences.
        mapped: arrays that are mapped already; those that are not are added.
    """
    for array in shared:
        if isinstance(array, MappedArray) and array not in mapped:
            mapped[array] = array.open()
    return SequenceArrays(*(mapped[array] if isinstance(array, MappedArray) else array for array in shared))


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a GPU's process.

    Args:
        kind: name of the exception's class.
        text: its message.
        remedy: of GpuUnavailable.
        requested_bytes: of OutOfGpuMemory.
        trace: its traceback.
    """

    kind: str
    text: str
    remedy: str
    requested_bytes: int
    trace: str

    @classmethod
    def from_exception(cls, error: BaseException) -> "WorkerFailure":
        """Describe an exception."""
        text = error.reason if isinstance(error, GpuUnavailable) else str(error)
        trace = "".join(traceback.format_exception(error))
        remedy, requested_bytes = getattr(error, "remedy", ""), getattr(error, "requested_bytes", 0)
        return cls(type(error).__name__, text, remedy, requested_bytes, trace)

    def to_exception(self, gpu: int) -> Exception:
        """Return the exception to raise in the searching process.

        Args:
            gpu: number of the GPU.
        """
        error: Exception
        if self.kind == "GpuUnavailable":
            error = GpuUnavailable(self.text, self.remedy)
        elif self.kind == "OutOfGpuMemory":
            error = OutOfGpuMemory(self.requested_bytes)
        else:
            error = RuntimeError(f"GPU {gpu}: {self.kind}: {self.text}")
        error.add_note(f"In the process of GPU {gpu}:\n{self.trace}")
        return error


def main() -> None:
    """Serve the sockets whose file descriptors are the first argument and the third; never returns.

    The third is empty if there is only one.
    """
    ignore_stop_signals()
    status = 1
    try:
        server = _Server(Connection(int(sys.argv[1])))
        if sys.argv[3]:
            aligning = _Server(Connection(int(sys.argv[3])), server.opened)
            threading.Thread(target=aligning.run, name="alignments", daemon=True).start()
        server.run()
        status = 0
    except BaseException:
        traceback.print_exc()
    # do not wait for other threads
    os._exit(status)


class _Server:
    """A server of requests, each of which names one of its public methods.

    Args:
        connection: to the process that sends them.
        opened: the GPU, once the searching process has opened it; None for the server of that process.
    """

    def __init__(self, connection: Connection, opened: "Future[LocalWorker] | None" = None) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        methods: list[Callable[..., Future[Any]]] = [self.alignment_batch, self.scores, self.paths]
        if opened is None:
            methods += self.open, self.load, self.prepare, self.filter, self.drain, self.release_unused
        self._methods = {method.__name__: method for method in methods}
        self.opened: Future[LocalWorker] = opened or Future()
        self._batches: dict[int, LocalAlignmentBatch] = {}
        # arrays of the loaded database; its files may be replaced while it is searched
        self._mapped: dict[MappedArray, np.ndarray] = {}
        self._cancelled = threading.Event()

    def run(self) -> None:
        """Answer requests until the other end is closed."""
        while True:
            try:
                number, name, arguments = self._connection.recv()
            except (EOFError, ConnectionError):
                return
            try:
                result = self._methods[name](*arguments)
            except Exception as error:
                self._send((number, True, WorkerFailure.from_exception(error), self._status))
            else:
                result.add_done_callback(partial(self._answer, number))

    def open(self, gpu: int, settings: GpuSettings, share: tuple[int, int]) -> "Future[Any]":
        """Open the GPU and return it; must be the first request."""
        sys.setswitchinterval(SWITCH_SECONDS)
        from msa.gpu.worker.local_worker import LocalWorker  # while the driver starts

        found = find_gpu(gpu)
        self.opened.set_result(LocalWorker(found, settings, self._report_compilation, share))
        opened: Future[Any] = Future()
        opened.set_result(found)
        return opened

    def load(self, targets: SharedSequences, part: tuple[int, int]) -> "Future[None]":
        """See GpuWorker.load."""
        self._mapped = {}
        return self._open_worker.load(open_sequences(targets, self._mapped), part)

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """See GpuWorker.prepare."""
        return self._open_worker.prepare(lengths, many_pairs)

    def filter(
        self, number: int, queries: Sequence[QueryProfile], settings: SearchSettings, more_follow: bool
    ) -> "Future[Any]":
        """Filter a batch and return the result; later requests refer to the batch by its number."""
        batch = self._open_worker.filter(queries, settings, more_follow, self._cancelled)
        self._batches[number] = batch
        return batch.best()

    def alignment_batch(
        self, number: int, queries: Sequence[QueryProfile], targets: SharedSequences
    ) -> "Future[None]":
        """Accept a batch to align to any targets."""
        sequences = open_sequences(targets, self._mapped)
        self._batches[number] = self._open_worker.alignment_batch(queries, sequences)
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
        return self.opened.result()

    @property
    def _status(self) -> WorkerStatus:
        if not self.opened.done():
            return WorkerStatus(False, {})
        worker = self.opened.result()
        return WorkerStatus(worker.resident, worker.seconds)

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
