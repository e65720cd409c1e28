"""Fair scheduling of all clients' requests on one search thread.

An engine runs one search at a time. Requests are therefore searched in chunks of about half a second, in
turn. A client with one query then waits for a chunk of another client's 500 queries, and not for all of them.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Condition
from typing import Protocol

from foldcli.errors import ExitCode, describe, exit_code_of, log_bug
from foldcli.logs import logger
from foldcli.server.protocol import SearchRequest, encode_message, end_message, error_message, hits_messages
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

# limits of a chunk; its hits take tens of megabytes
MAX_CHUNK_QUERIES = 64
MAX_CHUNK_HITS = 2**16
# intended time for the search of a chunk
CHUNK_SECONDS = 0.5

HitStream = Iterator[tuple[FastaRecord, Hits]]
Search = Callable[[Sequence[FastaRecord], SearchSettings], HitStream]


class ResultReceiver(Protocol):
    """The receiver of a request's results. Its methods are called from the search thread."""

    name: str

    def accepts_results(self) -> bool:
        """Return True if more results may be sent now."""
        ...

    def send(self, message: bytes) -> None:
        """Queue a message; never blocks."""
        ...

    def finish(self, message: bytes) -> None:
        """Queue the last message of the request."""
        ...


class ScheduledRequest:
    """A request with its progress.

    Attributes:
        is_cancelled: True once the receiver wants no more results.
        num_searched: number of queries searched so far, in order.
        seconds: time spent searching.
    """

    def __init__(self, request: SearchRequest, receiver: ResultReceiver) -> None:
        self.request, self.receiver = request, receiver
        self.is_cancelled = False
        self.num_searched = 0
        self.num_hits = 0
        self.seconds = 0.0

    @property
    def remaining_queries(self) -> Sequence[FastaRecord]:
        """Queries that have not been searched yet."""
        return self.request.queries[self.num_searched :]


class Scheduler:
    """A queue of requests, searched in turn by the thread that calls `run`.

    Args:
        check_engine: runs a small search, which fails only if the engine no longer works.
    """

    def __init__(self, search: Search, check_engine: Callable[[], None]) -> None:
        self._search, self._check_engine = search, check_engine
        self._queue: deque[ScheduledRequest] = deque()
        self._queue_changed = Condition()
        self._stopped = False
        self._residues_per_second = 0.0

    def submit(self, scheduled: ScheduledRequest) -> None:
        """Append a request to the queue."""
        with self._queue_changed:
            self._queue.append(scheduled)
            self._queue_changed.notify()

    def notify(self) -> None:
        """Wake the search thread, after a receiver accepts results again or a request was cancelled."""
        with self._queue_changed:
            self._queue_changed.notify()

    def stop(self) -> None:
        """Let `run` return after the current chunk."""
        with self._queue_changed:
            self._stopped = True
            self._queue_changed.notify()

    def run(self) -> None:
        """Search until `stop` is called.

        Raises:
            Exception: a search has failed, and then `check_engine` too, with this error.
        """
        while (scheduled := self._next()) is not None:
            if not self._search_chunk(scheduled):
                self._check_engine()

    def _next(self) -> ScheduledRequest | None:
        """Wait for a request whose receiver accepts results, and return it; return None after `stop`."""
        with self._queue_changed:
            while not self._stopped:
                for _ in range(len(self._queue)):
                    scheduled = self._queue.popleft()
                    if scheduled.is_cancelled:
                        name, count = scheduled.receiver.name, len(scheduled.remaining_queries)
                        logger.info("%s: %d queries dropped", name, count)
                    elif scheduled.receiver.accepts_results():
                        return scheduled
                    else:
                        self._queue.append(scheduled)
                self._queue_changed.wait()
        return None

    def _search_chunk(self, scheduled: ScheduledRequest) -> bool:
        """Search the next chunk of a request; return False if the engine may have failed."""
        start_time, first = time.perf_counter(), scheduled.num_searched
        queries = self._next_chunk(scheduled)
        receiver = scheduled.receiver
        try:
            for _, hits in self._search(queries, scheduled.request.settings):
                for message in hits_messages(scheduled.num_searched, hits, hits.capped):
                    receiver.send(encode_message(message))
                scheduled.num_searched += 1
                scheduled.num_hits += len(hits)
                if scheduled.is_cancelled:
                    break
        except Exception as error:
            log_bug(error)
            logger.error("%s: %s", receiver.name, describe(error))
            receiver.finish(encode_message(error_message(error)))
            return exit_code_of(error) is not ExitCode.UNEXPECTED
        seconds = time.perf_counter() - start_time
        scheduled.seconds += seconds
        residues = sum(len(query.sequence) for query in queries[: scheduled.num_searched - first])
        self._residues_per_second = residues / max(seconds, 1e-6)
        if scheduled.remaining_queries:
            self.submit(scheduled)
        else:
            receiver.finish(encode_message(end_message(scheduled.seconds)))
            logger.info(
                "%s: %d queries, %d hits, %.3f s",
                receiver.name, scheduled.num_searched, scheduled.num_hits, scheduled.seconds,
            )  # fmt: skip
        return True

    def _next_chunk(self, scheduled: ScheduledRequest) -> Sequence[FastaRecord]:
        """Return at least one query, and no more than fit into CHUNK_SECONDS at the last chunk's speed."""
        limit = min(MAX_CHUNK_QUERIES, MAX_CHUNK_HITS // scheduled.request.settings.max_seqs)
        affordable = CHUNK_SECONDS * self._residues_per_second
        lengths = itertools.accumulate(len(query.sequence) for query in scheduled.remaining_queries[:limit])
        return scheduled.remaining_queries[: max(1, sum(length <= affordable for length in lengths))]
