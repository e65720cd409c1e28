"""Whose turn it is, with searches that take no time, fail, or never end by themselves."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from foldcli.server.protocol import SearchRequest
from foldcli.server.scheduler import MOST_CANDIDATES, MOST_QUERIES, Found, Job, Scheduler
from msa.errors import MissingError
from msa.io.fasta import FastaRecord
from msa.search.settings import SearchSettings


class Receiver:
    """Keeps what it is sent; stops the scheduler when the last of several has finished."""

    def __init__(self, name: str, log: list[str], done: Callable[[], None]) -> None:
        self.name, self.room = name, True
        self.messages: list[dict[str, Any]] = []
        self._log, self._done = log, done

    def has_room(self) -> bool:
        return self.room

    def send(self, message: bytes) -> None:
        self.messages.append(json.loads(message[4:]))
        self._log.append(self.name)

    def finish(self, message: bytes) -> None:
        self.messages.append(json.loads(message[4:]))
        self._log.append(f"{self.name} done")
        self._done()


class Run:
    """A scheduler that ends when all its jobs have."""

    def __init__(self, search: Callable[..., Found], check: Callable[[], None] = lambda: None) -> None:
        self.pieces: list[Sequence[FastaRecord]] = []
        self.log: list[str] = []
        self._left = 0

        def searched(queries: Sequence[FastaRecord], settings: SearchSettings) -> Found:
            self.pieces.append(queries)
            return search(queries, settings)

        self.scheduler = Scheduler(searched, check)

    def job(self, name: str, queries: int, **settings: Any) -> Job:
        self._left += 1
        records = [FastaRecord(f"{name}{i}", "MK") for i in range(queries)]
        receiver = Receiver(name, self.log, self._finished)
        job = Job(SearchRequest(records, SearchSettings(**settings)), receiver)
        self.scheduler.submit(job)
        return job

    def _finished(self) -> None:
        self._left -= 1
        if not self._left:
            self.scheduler.stop()


def nothing_found(queries: Sequence[FastaRecord], settings: SearchSettings) -> Found:
    for query in queries:
        yield query, []


def test_clients_take_turns() -> None:
    run = Run(nothing_found)
    run.job("a", 500)
    run.job("b", 1)
    run.job("c", 100)
    run.scheduler.run()
    # the first piece is one query, as nothing is known of their cost; then b and c have their turns
    assert run.log[:4] == ["a", "b", "b done", "c"]
    assert run.log.index("c done") < run.log.index("a done")
    assert [run.log.count(name) for name in "abc"] == [500, 1, 100]
    for name, count in (("a", 500), ("c", 100)):
        done = [query.id for piece in run.pieces for query in piece if query.id.startswith(name)]
        assert done == [f"{name}{i}" for i in range(count)]


def test_pieces_are_bounded_by_queries_and_by_candidates() -> None:
    run = Run(nothing_found)
    run.job("a", 500)
    run.scheduler.run()
    assert max(map(len, run.pieces)) == MOST_QUERIES
    run = Run(nothing_found)
    run.job("a", 50, max_seqs=MOST_CANDIDATES // 3)
    run.scheduler.run()
    assert max(map(len, run.pieces)) == 3


def test_a_client_that_has_no_room_waits_and_loses_nothing() -> None:
    run = Run(nothing_found)
    slow = run.job("slow", 2)
    slow.receiver.room = False
    quick = run.job("quick", 3)
    finish = quick.receiver.finish

    def finish_and_make_room(message: bytes) -> None:
        slow.receiver.room = True
        finish(message)
        run.scheduler.nudge()

    quick.receiver.finish = finish_and_make_room
    run.scheduler.run()
    assert run.log == ["quick", "quick", "quick", "quick done", "slow", "slow", "slow done"]


def test_dropped_work_ends_with_the_query_under_way() -> None:
    closed = []

    def endless(queries: Sequence[FastaRecord], settings: SearchSettings) -> Iterator[Any]:
        try:
            while True:
                yield queries[0], []
                job.dropped = True
        finally:
            closed.append(True)
            run.scheduler.stop()

    run = Run(endless)
    job = run.job("a", 10)
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
def test_a_failed_search_is_its_clients_alone(error: Exception, code: int, checks: int) -> None:
    checked = []

    def fails_for_a(queries: Sequence[FastaRecord], settings: SearchSettings) -> Found:
        yield queries[0], []
        if queries[0].id == "a1":
            raise error
        yield from ((query, []) for query in queries[1:])

    run = Run(fails_for_a, lambda: checked.append(True))
    failing, other = run.job("a", 10), run.job("b", 5)
    run.scheduler.run()
    assert [message["type"] for message in failing.receiver.messages] == ["hits", "hits", "error"]
    assert failing.receiver.messages[-1]["code"] == code
    assert [message["type"] for message in other.receiver.messages] == ["hits"] * 5 + ["end"]
    assert len(checked) == checks


def test_an_engine_that_does_not_recover_ends_the_run() -> None:
    def fails(queries: Sequence[FastaRecord], settings: SearchSettings) -> Found:
        raise RuntimeError("an illegal memory access was encountered")
        yield

    def check() -> None:
        raise RuntimeError("the context is lost")

    run = Run(fails, check)
    job = run.job("a", 1)
    with pytest.raises(RuntimeError, match="context is lost"):
        run.scheduler.run()
    assert job.receiver.messages[-1]["type"] == "error"
