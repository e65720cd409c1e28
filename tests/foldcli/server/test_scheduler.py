"""Scheduling of requests, with searches that take no time, fail, or never end."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from foldcli.server.protocol import SearchRequest
from foldcli.server.scheduler import (
    MAX_CHUNK_HITS,
    MAX_CHUNK_QUERIES,
    HitStream,
    ScheduledRequest,
    Scheduler,
)
from msa.base.errors import MissingError
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

NO_HITS = Hits.from_sequence(4, [])


class Receiver:
    """A receiver that keeps its messages, and calls a function when its request is finished."""

    def __init__(self, name: str, log: list[str], on_finish: Callable[[], None]) -> None:
        self.name, self.accepts = name, True
        self.messages: list[dict[str, Any]] = []
        self._log, self._on_finish = log, on_finish

    def accepts_results(self) -> bool:
        return self.accepts

    def send(self, message: bytes) -> None:
        self.messages.append(json.loads(message[4:]))
        self._log.append(self.name)

    def finish(self, message: bytes) -> None:
        self.messages.append(json.loads(message[4:]))
        self._log.append(f"{self.name} done")
        self._on_finish()


class Run:
    """A scheduler that stops when all its requests are finished."""

    def __init__(self, search: Callable[..., HitStream], check: Callable[[], None] = lambda: None) -> None:
        self.chunks: list[Sequence[FastaRecord]] = []
        self.log: list[str] = []
        self._unfinished = 0

        def search_chunk(queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
            self.chunks.append(queries)
            return search(queries, settings)

        self.scheduler = Scheduler(search_chunk, check)

    def submit(self, name: str, queries: int, **settings: Any) -> ScheduledRequest:
        self._unfinished += 1
        records = [FastaRecord(f"{name}{i}", "MK") for i in range(queries)]
        receiver = Receiver(name, self.log, self._finished)
        scheduled = ScheduledRequest(SearchRequest(records, SearchSettings(**settings)), receiver)
        self.scheduler.submit(scheduled)
        return scheduled

    def _finished(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self.scheduler.stop()


def search_without_hits(queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
    for query in queries:
        yield query, NO_HITS


def test_clients_take_turns() -> None:
    run = Run(search_without_hits)
    run.submit("a", 500)
    run.submit("b", 1)
    run.submit("c", 100)
    run.scheduler.run()
    # the first chunk is one query, since the cost is not known yet; then it is the turn of b and c
    assert run.log[:4] == ["a", "b", "b done", "c"]
    assert run.log.index("c done") < run.log.index("a done")
    assert [run.log.count(name) for name in "abc"] == [500, 1, 100]
    for name, count in (("a", 500), ("c", 100)):
        done = [query.id for chunk in run.chunks for query in chunk if query.id.startswith(name)]
        assert done == [f"{name}{i}" for i in range(count)]


def test_chunks_are_limited_by_queries_and_by_hits() -> None:
    run = Run(search_without_hits)
    run.submit("a", 500)
    run.scheduler.run()
    assert max(map(len, run.chunks)) == MAX_CHUNK_QUERIES
    run = Run(search_without_hits)
    run.submit("a", 50, max_seqs=MAX_CHUNK_HITS // 3)
    run.scheduler.run()
    assert max(map(len, run.chunks)) == 3


def test_slow_client_waits_and_loses_nothing() -> None:
    run = Run(search_without_hits)
    slow = run.submit("slow", 2)
    slow.receiver.accepts = False
    quick = run.submit("quick", 3)
    finish = quick.receiver.finish

    def finish_and_accept(message: bytes) -> None:
        slow.receiver.accepts = True
        finish(message)
        run.scheduler.notify()

    quick.receiver.finish = finish_and_accept
    run.scheduler.run()
    assert run.log == ["quick", "quick", "quick", "quick done", "slow", "slow", "slow done"]


def test_cancelled_request_ends_after_its_current_query() -> None:
    closed = []

    def endless(queries: Sequence[FastaRecord], settings: SearchSettings) -> Iterator[Any]:
        try:
            while True:
                yield queries[0], NO_HITS
                scheduled.is_cancelled = True
        finally:
            closed.append(True)
            run.scheduler.stop()

    run = Run(endless)
    scheduled = run.submit("a", 10)
    run.scheduler.run()
    assert closed == [True] and len(run.log) == 2


@pytest.mark.parametrize(
    ("error", "code", "checks"),
    [
        (MissingError("the GPU has no memory left", "use another"), 4, 0),
        (MemoryError("4 TiB"), 1, 1),
        (ZeroDivisionError(), 1, 1),
    ],
)
def test_failed_search_affects_its_client_only(error: Exception, code: int, checks: int) -> None:
    checked = []

    def fails_for_a(queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
        yield queries[0], NO_HITS
        if queries[0].id == "a1":
            raise error
        yield from ((query, NO_HITS) for query in queries[1:])

    run = Run(fails_for_a, lambda: checked.append(True))
    failing, other = run.submit("a", 10), run.submit("b", 5)
    run.scheduler.run()
    assert [message["type"] for message in failing.receiver.messages] == ["hits", "hits", "error"]
    assert failing.receiver.messages[-1]["code"] == code
    assert [message["type"] for message in other.receiver.messages] == ["hits"] * 5 + ["end"]
    assert len(checked) == checks


def test_broken_engine_ends_the_run() -> None:
    def fails(queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
        raise RuntimeError("an illegal memory access was encountered")
        yield

    def check() -> None:
        raise RuntimeError("the context is lost")

    run = Run(fails, check)
    scheduled = run.submit("a", 1)
    with pytest.raises(RuntimeError, match="context is lost"):
        run.scheduler.run()
    assert scheduled.receiver.messages[-1]["type"] == "error"
