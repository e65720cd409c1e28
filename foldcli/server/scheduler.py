"""Whose turn it is: the requests of all clients, searched by one thread, a piece of each in turn.

An engine does one search at a time. A request is therefore searched in pieces, each of about half a second,
and a client with one query waits for a piece of another's five hundred and not for all of them.
"""

import itertools
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from threading import Condition
from typing import TYPE_CHECKING, Protocol

from foldcli.errors import ExitCode, describe, exit_code_of, is_bug
from foldcli.logs import logger
from foldcli.server.protocol import SearchRequest, end_message, error_message, frame, hits_messages

if TYPE_CHECKING:
    from msa.io.fasta import FastaRecord
    from msa.search.hits import Hit
    from msa.search.settings import SearchSettings

MOST_QUERIES = 64
"""Of a piece."""

MOST_CANDIDATES = 2**16
"""Targets that the queries of a piece may align between them, so that its hits take tens of megabytes."""

PIECE_SECONDS = 0.5

Found = Generator[tuple["FastaRecord", "list[Hit]"], None, None]
Search = Callable[[Sequence["FastaRecord"], "SearchSettings"], Found]


class Receiver(Protocol):
    """Who is sent the results of a request. Its methods are called from the search's thread."""

    name: str

    def has_room(self) -> bool:
        """Whether more results may be sent now."""
        ...

    def send(self, message: bytes) -> None:
        """Take a message; never waits."""
        ...

    def finish(self, message: bytes) -> None:
        """Take the last message of the request."""
        ...


class Job:
    """A request on its way.

    Args:
        request: what is searched.
        receiver: who gets the hits.
    """

    def __init__(self, request: SearchRequest, receiver: Receiver) -> None:
        self.request, self.receiver = request, receiver
        self.dropped = False
        self.searched = 0
        self.hits = 0
        self.seconds = 0.0

    @property
    def left(self) -> Sequence["FastaRecord"]:
        return self.request.queries[self.searched :]


class Scheduler:
    """Requests in turn, searched by the one thread that calls `run`.

    Args:
        search: what searches; called for a piece at a time.
        check: a search that must succeed as long as the engine works.
    """

    def __init__(self, search: Search, check: Callable[[], None]) -> None:
        self._search, self._check = search, check
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._stopped = False
        self._residues_a_second = 0.0

    def submit(self, job: Job) -> None:
        """Queue a request behind those that wait."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def nudge(self) -> None:
        """A receiver has room again, or a request was dropped."""
        with self._changed:
            self._changed.notify()

    def stop(self) -> None:
        """Let `run` return after the piece that is being searched."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Search until `stop`.

        Raises:
            Exception: what `check` raised after a search had failed: the engine no longer works.
        """
        while (job := self._next()) is not None:
            if self._piece(job):
                self._check()

    def _next(self) -> Job | None:
        """The next request that is wanted and whose receiver has room; None after `stop`."""
        with self._changed:
            while not self._stopped:
                for _ in range(len(self._waiting)):
                    job = self._waiting.popleft()
                    if job.dropped:
                        logger.info("%s: %d queries dropped", job.receiver.name, len(job.left))
                    elif job.receiver.has_room():
                        return job
                    else:
                        self._waiting.append(job)
                self._changed.wait()
        return None

    def _piece(self, job: Job) -> bool:
        """Search some queries of a request; whether that failed in a way that nobody foresaw."""
        begun, first = time.perf_counter(), job.searched
        queries = self._first_of(job)
        try:
            with closing(self._search(queries, job.request.settings)) as found:
                for _, hits in found:
                    for message in hits_messages(job.searched, hits):
                        job.receiver.send(frame(message))
                    job.searched += 1
                    job.hits += len(hits)
                    if job.dropped:
                        break
        except Exception as error:
            if is_bug(error):
                logger.error("%s", "".join(traceback.format_exception(error)).rstrip())
            logger.error("%s: %s", job.receiver.name, describe(error))
            job.receiver.finish(frame(error_message(error)))
            return exit_code_of(error) is ExitCode.UNEXPECTED
        seconds = time.perf_counter() - begun
        job.seconds += seconds
        residues = sum(len(query.sequence) for query in queries[: job.searched - first])
        self._residues_a_second = residues / max(seconds, 1e-6)
        if job.left:
            self.submit(job)
        else:
            job.receiver.finish(frame(end_message(job.seconds)))
            logger.info(
                "%s: %d queries, %d hits, %.3f s", job.receiver.name, job.searched, job.hits, job.seconds
            )
        return False

    def _first_of(self, job: Job) -> Sequence["FastaRecord"]:
        """So many of the queries left as the last piece lets expect to take `PIECE_SECONDS`, at least one."""
        most = min(MOST_QUERIES, MOST_CANDIDATES // job.request.settings.max_seqs)
        affordable = PIECE_SECONDS * self._residues_a_second
        lengths = itertools.accumulate(len(query.sequence) for query in job.left[:most])
        return job.left[: max(1, sum(length <= affordable for length in lengths))]
