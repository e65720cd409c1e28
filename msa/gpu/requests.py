"""Requests to the process of a GPU, from the searching process or from the one that scores candidates."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.devices import GpuUnavailable
from msa.gpu.group import align_pairs
from msa.gpu.worker_process import WorkerFailure, WorkerStatus, share_sequences
from msa.search.engine import Candidates, EngineRequest
from msa.search.query_profile import QueryProfile


class Requests:
    """The pending requests to a process that runs msa.gpu.worker_process.

    Args:
        gpu: number of its GPU.
        own_socket: this process's end of the socket.
    """

    def __init__(self, gpu: int, own_socket: socket.socket) -> None:
        self.gpu = gpu
        self.status = WorkerStatus(False, {})
        # separate locks for sending and for pending requests: answers arrive while a request is being sent
        self._send_lock, self._pending_lock = threading.Lock(), threading.Lock()
        self._numbers = count()
        self._pending: dict[int, Future[Any]] = {}
        self._ended: Exception | None = None
        self._socket = own_socket
        self._connection = Connection(os.dup(own_socket.fileno()))
        threading.Thread(target=self._receive, name=f"answers of GPU {gpu}", daemon=True).start()

    def request(self, name: str, *arguments: object) -> "Future[Any]":
        """Send a request and return its future answer.

        The answer raises GpuUnavailable, naming the GPU, if the process has ended.
        """
        answer: Future[Any] = Future()
        with self._send_lock:
            with self._pending_lock:
                if self._ended is not None:
                    answer.set_exception(self._ended)
                    return answer
                number = next(self._numbers)
                self._pending[number] = answer
            try:
                self._connection.send((number, name, arguments))
            except ConnectionError:
                # the receiving thread notices this, too, and fails all pending requests
                pass
            except BaseException:
                # interrupted: the process would wait for the rest of a partially sent message
                self.hang_up()
                raise
        return answer

    def hang_up(self) -> None:
        """Close the connection; that of the searching process ends the GPU's process."""
        # the process may have ended already
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Release the socket, once the other end has been closed."""
        self._socket.close()

    def reason(self) -> str:
        """Say why there are no more answers."""
        return f"the process of GPU {self.gpu} has ended"

    def report(self, *message: Any) -> None:
        """Handle a report of progress, which only the searching process gets."""

    def _receive(self) -> None:
        """Handle messages until the connection is closed; runs in its own thread."""
        try:
            while True:
                self._handle(self._connection.recv())
        except (EOFError, OSError):
            pass
        finally:
            self._fail_pending()

    def _fail_pending(self) -> None:
        """Fail all pending requests when the process has ended."""
        self.wait()
        error = GpuUnavailable(
            self.reason(),
            "Its own messages are above; the system log (dmesg) may report memory or driver errors.",
        )
        with self._pending_lock:
            self._ended = error
            pending = list(self._pending.values())
            self._pending.clear()
        for answer in pending:
            answer.set_exception(error)
        with self._send_lock:
            self._connection.close()

    def _handle(self, message: tuple[Any, ...]) -> None:
        """Handle an answer or a progress report."""
        if message[0] is None:
            self.report(*message[1:])
            return
        number, failed, value, self.status = message
        with self._pending_lock:
            answer = self._pending.pop(number)
        if failed:
            failure: WorkerFailure = value
            answer.set_exception(failure.to_exception(self.gpu))
        else:
            answer.set_result(value)


class RemoteAlignmentBatch:
    """A batch on a GPU of another process; implements msa.gpu.interface.AlignmentBatch.

    Args:
        process: the process.
        number: identifies the batch in that process.
        started: answer to the request that created it.
    """

    def __init__(self, process: Requests, number: int, started: "Future[Any]") -> None:
        self._process, self._number, self._started = process, number, started

    def scores(
        self, owners: np.ndarray, targets: np.ndarray, gap_costs: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Compute alignment scores, int32 [n]."""
        return self._process.request("scores", self._number, owners, targets, gap_costs, reverse)

    def paths(self, selected: np.ndarray) -> "Future[AlignmentPaths]":
        """Compute the alignments of some of the scored pairs."""
        return self._process.request("paths", self._number, selected)


class RemoteAligner:
    """Alignments on a GPU that the process of a search drives; implements msa.search.engine.Aligner.

    Args:
        requests: to the GPU's process.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._batch_numbers = count()

    def alignment_batch(
        self, queries: Sequence[QueryProfile], targets: SequenceArrays
    ) -> RemoteAlignmentBatch:
        """Return a batch to align to any targets."""
        number = next(self._batch_numbers)
        started = self._requests.request("alignment_batch", number, list(queries), share_sequences(targets))
        return RemoteAlignmentBatch(self._requests, number, started)

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Align each query to its targets and yield its candidates."""
        return align_pairs([self], pairs, request)
