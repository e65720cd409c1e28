"""A process that scores the candidates of a search while the searching one feeds a GPU.

Scoring takes as much time of an interpreter as everything else in a search with many queries, and begins with
the import of numba and the loading of compiled kernels. In the searching process, the GPU would wait for it.
"""

import contextlib
import os
import socket
import threading
import weakref
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from msa.child_process import StartedProcess
from msa.database.database import TargetDatabase
from msa.gpu.worker_process import WorkerFailure
from msa.search.scored_batch import AlignedBatch, Scores, ScoringRules


class RemoteScoring:
    """A process that runs msa.search.scoring_worker; implements msa.search.scored_batch.ScoringProcess.

    It ends with this process, or when this object is collected.

    Args:
        started: the process.
        gpu: number of the GPU with which it aligns.
    """

    def __init__(self, started: StartedProcess, gpu: int) -> None:
        self._gpu, self._process = gpu, started.process
        self._connection = Connection(os.dup(started.socket.fileno()))
        self._send_lock, self._pending_lock = threading.Lock(), threading.Lock()
        self._numbers = count()
        self._pending: dict[int, Future[Scores | None]] = {}
        self._ended = False
        # those that the process knows, by number
        self._searches: list[tuple[TargetDatabase, ScoringRules]] = []
        self._hang_up = weakref.finalize(self, _hang_up, started.socket)
        arguments = weakref.ref(self), self._connection
        threading.Thread(target=_receive, args=arguments, name="scores", daemon=True).start()

    def submit(
        self, batch: AlignedBatch, database: TargetDatabase, rules: ScoringRules
    ) -> "Future[Scores | None]":
        """Score candidates; the result is None if the process has ended, or cannot open the database.

        Args:
            batch: the candidates.
            database: the database that is searched.
            rules: of the scores.
        """
        answer: Future[Scores | None] = Future()
        with self._send_lock:
            with self._pending_lock:
                if self._ended:
                    answer.set_result(None)
                    return answer
                number = next(self._numbers)
                self._pending[number] = answer
            try:
                self._connection.send((number, self._search_number(database, rules), batch))
            except OSError:
                self.fail_pending()
        return answer

    def close(self) -> None:
        """End the process."""
        self._hang_up()
        self._process.kill()
        self._process.wait()

    def _search_number(self, database: TargetDatabase, rules: ScoringRules) -> int:
        """Return the number of a search, which the process gets to know if it does not yet."""
        for number, known in enumerate(self._searches):
            if known[0] is database and known[1] == rules:
                return number
        self._connection.send((database.path.resolve(), database.manifest, rules, len(self._searches)))
        self._searches.append((database, rules))
        return len(self._searches) - 1

    def answer(self, number: int, failed: bool, value: Any) -> None:
        """Set the result of a request."""
        with self._pending_lock:
            answer = self._pending.pop(number, None)
        if answer is None:
            return
        if failed:
            failure: WorkerFailure = value
            answer.set_exception(failure.to_exception(self._gpu))
        else:
            answer.set_result(value)

    def fail_pending(self) -> None:
        """Let this process score all pending batches and all later ones."""
        with self._pending_lock:
            self._ended = True
            pending = list(self._pending.values())
            self._pending.clear()
        for answer in pending:
            answer.set_result(None)


def _receive(process: "weakref.ref[RemoteScoring]", connection: Connection) -> None:
    """Handle answers until the connection is closed; runs in its own thread."""
    try:
        while True:
            number, failed, value = connection.recv()
            if (owner := process()) is None:
                return
            owner.answer(number, failed, value)
            # so that it can be collected
            del owner
    except (EOFError, OSError):
        if (owner := process()) is not None:
            owner.fail_pending()


def _hang_up(own_socket: socket.socket) -> None:
    """Close the connection, which ends the process."""
    # it may have ended already
    with contextlib.suppress(OSError):
        own_socket.shutdown(socket.SHUT_RDWR)
    own_socket.close()
