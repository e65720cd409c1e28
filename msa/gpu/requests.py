"""Requests to the process of a GPU, or to one that works with the same GPU."""

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
from msa.engines.engine import Candidates, EngineRequest
from msa.engines.query_profile import QueryProfile
from msa.gpu.device.devices import GpuUnavailable
from msa.gpu.group import align_pairs
from msa.gpu.worker.worker_process import WorkerFailure, share_sequences


class Requests:
    """The pending requests to a process.

    Requests are (number, name, arguments). Answers begin with (number, failed, value), in any order; the
    value is a WorkerFailure if the request has failed.

    Args:
        gpu: number of the GPU that the process drives or works with.
        own_socket: this process's end of the socket.
    """

    def __init__(self, gpu: int, own_socket: socket.socket) -> None:
        self.gpu = gpu
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

        The answer raises the error of `ended` if the process has ended.
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
        """Close the connection, which ends a process that serves no other one."""
        # the process may have ended already
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Release the socket, once the other end has been closed."""
        self._socket.close()

    def ended(self) -> Exception:
        """Return the error of requests that the process did not answer before it ended."""
        return process_ended(self.gpu)

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
        error = self.ended()
        with self._pending_lock:
            self._ended = error
            pending = list(self._pending.values())
            self._pending.clear()
        for answer in pending:
            answer.set_exception(error)
        with self._send_lock:
            self._connection.close()

    def _handle(self, message: tuple[Any, ...]) -> None:
        """Handle an answer."""
        number, failed, value = message[:3]
        with self._pending_lock:
            answer = self._pending.pop(number)
        if failed:
            failure: WorkerFailure = value
            answer.set_exception(failure.to_exception(self.gpu))
        else:
            answer.set_result(value)


def process_ended(gpu: int, how: str = "") -> GpuUnavailable:
    """Return the error of a GPU whose process has ended.

    Args:
        gpu: number of the GPU.
        how: how the process has ended, if that is known.
    """
    return GpuUnavailable(
        f"the process of GPU {gpu} has ended{f': {how}' if how else ''}",
        "Its own messages are above; the system log (dmesg) may report memory or driver errors.",
    )


class RemoteAlignmentBatch:
    """A batch on a GPU of another process; implements msa.gpu.worker.interface.AlignmentBatch.

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
    """Alignments on a GPU that the process of a search drives; implements msa.engines.engine.Aligner.

    Args:
        requests: to the GPU's process.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests, self._batch_numbers = requests, count()

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
