"""Tests of iterated searches: hits beyond those of a single search, and queries that leave early."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa.base.errors import InputError
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines import database_processes
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import Candidates, EngineRequest
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.search import iterations
from msa.search.database_search import search, search_many
from msa.search.families import builder
from msa.search.families.family import initial_profile
from msa.search.profile_search import ProfileSearch

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastaRecord, TargetDatabase]:
    """Create a query, and a database with relatives of it.

    The near relatives all share the same half of the query's residues; the far relative shares a part of it.
    """
    rng = np.random.default_rng(5)
    query = rng.choice(LETTERS, 120)
    kept = rng.random(120) < 0.5

    def relative(changed: float, also_kept: bool = False) -> str:
        may_change = ~kept if also_kept else np.ones(120, bool)
        return "".join(np.where(may_change & (rng.random(120) < changed), rng.choice(LETTERS, 120), query))

    records = [(f"near{k}", relative(1.0, also_kept=True)) for k in range(12)]
    far = np.where(kept & (rng.random(120) < 0.62), query, rng.choice(LETTERS, 120))
    records += [("far", "".join(far))]
    records += [(f"noise{k}", "".join(rng.choice(LETTERS, 150))) for k in range(400)]
    folder = tmp_path_factory.mktemp("family")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return FastaRecord("query", "".join(query)), TargetDatabase.open(folder / "db")


class CountingEngine(CpuEngine):
    """A CPU engine that records the number of profiles in each run."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        profiles = list(queries)
        self.runs.append(len(profiles))
        return super().run(profiles, request)


class AheadEngine(CpuEngine):
    """A CPU engine that takes several queries before it yields candidates, as engines on GPUs do."""

    drives_gpus = True  # type: ignore[misc]

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self.running = self.most_running = 0
        self._second_begins, self._runs = threading.Event(), 0

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._runs += 1
        is_first = self._runs == 1
        if not is_first:
            self._second_begins.set()
        pending: deque[Candidates] = deque()
        for candidates in super().run(queries, request):
            pending.append(candidates)
            if len(pending) > self._ahead:
                yield pending.popleft()
        if pending:
            yield pending.popleft()
        # the second iteration need not wait for the last queries of the first
        assert not pending or not is_first or self._second_begins.wait(60)
        yield from pending
        self.running -= 1


class GpuLikeEngine(CpuEngine):
    """A CPU engine that may have processes for other Python code."""

    drives_gpus = True  # type: ignore[misc]


def evalues(hits: Sequence[Hit], name: str) -> list[float]:
    return [hit.evalue for hit in hits if hit.id == name]


def test_second_iteration_finds_far_relative(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    # random sequences have none of the contexts of real ones
    settings = SearchSettings(matrix="BLOSUM62", gap_open=11, evalue=2e-4)
    once = search(query, database, settings)
    assert sum(hit.id.startswith("near") for hit in once) == 12 and not evalues(once, "far")
    twice = search(query, database, replace(settings, num_iterations=2))
    assert evalues(twice, "far")
    assert not any(hit.id.startswith("noise") for hit in twice)


def test_hits_above_e_profile_do_not_join_the_profile(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    # without corrections, which iterated searches make in the profile
    settings = SearchSettings(evalue=1e-3, e_profile=0.0, num_iterations=4, comp_bias_corr=False)
    found, once = (
        search(query, database, settings),
        search(query, database, replace(settings, num_iterations=1)),
    )
    assert [(hit.id, hit.alignment.score, hit.alignment.cigar) for hit in found] == [
        (hit.id, hit.alignment.score, hit.alignment.cigar) for hit in once
    ]


def test_query_with_unchanged_profile_leaves_the_search(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    unrelated = FastaRecord("unrelated", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    engine = CountingEngine()
    settings = SearchSettings(num_iterations=4)
    found = dict(search_many([unrelated, query, unrelated], database, settings, engine=engine))
    # the query without relatives leaves after the first iteration
    assert engine.runs[0] == 3 and engine.runs[1] == 1
    assert len(found[unrelated]) == len(search(unrelated, database)) == 0
    assert [hit.id for hit in found[query]] == [hit.id for hit in search(query, database, settings)]


def test_limit_on_the_hits_of_a_query_that_leaves_the_search(
    family: tuple[FastaRecord, TargetDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hits that could only have joined the family do not count."""
    monkeypatch.setattr(builder.FamilyBuilder, "update", lambda *arguments: None)
    settings = SearchSettings(num_iterations=2, evalue=1e-3, e_profile=10.0)
    passing = len(search(*family, replace(settings, max_seqs=300)))
    assert 5 < passing < len(search(*family, replace(settings, evalue=10.0, max_seqs=300))) - 1
    for max_seqs, capped in ((5, True), (passing + 1, False)):
        found = search(*family, replace(settings, max_seqs=max_seqs))
        assert len(found) == min(passing, max_seqs) and found.capped == capped


def test_search_uses_the_profile_of_a_profile_query(
    family: tuple[FastaRecord, TargetDatabase],
) -> None:
    query, database = family
    profiles: list[np.ndarray] = []

    def found(record: FastaRecord, iterations: int, e_profile: float) -> list[tuple[str, int]]:
        settings = SearchSettings(num_iterations=iterations, e_profile=e_profile)
        searched = search_many(
            [record],
            database,
            settings,
            on_profile=lambda _, profile, of_family: profiles.append(profile.profile),
        )
        ((_, hits),) = list(searched)
        return [(hit.id, hit.alignment.score) for hit in hits]

    twice, thrice = found(query, 2, 0.1), found(query, 3, 0.1)
    own = ProfileRecord(query.header, query.sequence, profiles[0], "a test")
    assert found(own, 1, 0.1) == twice != found(query, 1, 0.1)
    assert found(own, 2, 0.1) == thrice
    # no hit may join, so the profile does not change
    assert found(own, 3, 0.0) == twice
    np.testing.assert_array_equal(profiles[-1], profiles[0])


def test_progress_rises_and_ends_at_the_total(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    reported: list[tuple[int, int | None]] = []
    list(
        search_many(
            [query] * 3,
            database,
            SearchSettings(num_iterations=9),
            progress=lambda done, total: reported.append((done, total)),
        )
    )
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert reported[-1] == (3 * 9 * len(database.arrays.lengths),) * 2


@pytest.mark.parametrize("invalid", [{"num_iterations": 0}, {"e_profile": -1.0}, {"e_profile": float("nan")}])
def test_settings_out_of_range_are_rejected(invalid: dict[str, float], tmp_path: Path) -> None:
    (name,) = invalid
    with pytest.raises(InputError, match=name):
        SearchSettings(**invalid)  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead", [0, 2, 100])
@pytest.mark.parametrize("evalue", [1e-3, 10.0])
def test_iterations_may_overlap(
    family: tuple[FastaRecord, TargetDatabase], ahead: int, evalue: float
) -> None:
    query, database = family
    unrelated = FastaRecord("unrelated", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    parts = [FastaRecord(f"part{k}", query.sequence[10 * k :]) for k in range(5)]
    records = [query, unrelated, *parts, unrelated, query, unrelated]
    settings = SearchSettings(num_iterations=3, evalue=evalue)
    engine, reports = AheadEngine(ahead), [0]
    found = list(
        search_many(
            records, database, settings, engine=engine, progress=lambda done, total: reports.append(done)
        )
    )
    expected = list(search_many(records, database, settings))
    assert len(found) == len(records)
    for (record, hits), (other, other_hits) in zip(found, expected, strict=True):
        assert record is other and hits.targets.tolist() == other_hits.targets.tolist()
        assert hits.evalues.tolist() == other_hits.evalues.tolist()
    assert engine.most_running == (2 if ahead else 1) and not engine.running
    assert reports == sorted(reports) and reports[-1] == 3 * len(records) * len(database)


class RecordingEngine(AheadEngine):
    """Sets an event when its second run has taken two queries."""

    def __init__(self) -> None:
        super().__init__(ahead=1)
        self.second_has_two = threading.Event()

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        number = self._runs

        def recorded() -> Iterator[QueryProfile]:
            for count, query in enumerate(queries):
                if number == 1 and count == 1:
                    self.second_has_two.set()
                yield query

        return super().run(recorded(), request)


@pytest.mark.parametrize("slow", [0, 3])
def test_a_slow_family_does_not_hold_up_others(
    family: tuple[FastaRecord, TargetDatabase], slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, database = family
    records = [FastaRecord(f"part{k}", query.sequence[8 * k :]) for k in range(4)]
    settings = SearchSettings(num_iterations=3, threads=4)
    expected = list(search_many(records, database, settings))
    engine, update = RecordingEngine(), builder.FamilyBuilder.update

    def slow_update(self: builder.FamilyBuilder, record: FastaRecord, *arguments: Any) -> Any:
        if record is records[slow]:
            assert engine.second_has_two.wait(60)
        return update(self, record, *arguments)

    monkeypatch.setattr(builder.FamilyBuilder, "update", slow_update)
    for (record, hits), (other, other_hits) in zip(
        search_many(records, database, settings, engine=engine), expected, strict=True
    ):
        assert record is other and hits.evalues.tolist() == other_hits.evalues.tolist()
        assert hits.targets.tolist() == other_hits.targets.tolist() and len(hits) > 5


def test_next_iteration_returns_queries_in_order(
    family: tuple[FastaRecord, TargetDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each family is known before those of the queries in front of it."""
    query, database = family
    records = [FastaRecord(f"part{k}", query.sequence[8 * k :]) for k in range(3)]
    settings = SearchSettings(num_iterations=2, threads=4)
    first = iterations.IteratedSearch(database, settings, CpuEngine(), max_queries=3)
    hits = [next(first.run_next([record], [], lambda pairs: None))[1] for record in records]
    known, update = [threading.Event() for _ in range(4)], builder.FamilyBuilder.update
    known[3].set()

    def last_first(self: builder.FamilyBuilder, record: FastaRecord, *arguments: Any) -> Any:
        k = records.index(record)
        assert known[k + 1].wait(60)
        result = update(self, record, *arguments)
        known[k].set()
        return result

    monkeypatch.setattr(builder.FamilyBuilder, "update", last_first)
    found = first.run_next(records, [lambda k: hits[k]], lambda pairs: None)
    assert [k for k, _ in found] == [0, 1, 2]


def test_hits_are_returned_as_soon_as_possible(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    unrelated = FastaRecord("unrelated", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    last_run: list[Candidates] = []

    class Engine(CpuEngine):
        def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
            last_run.clear()
            for candidates in super().run(queries, request):
                last_run.append(candidates)
                yield candidates

    records = [unrelated, unrelated, query, FastaRecord("part", query.sequence[20:])]
    found = search_many(records, database, SearchSettings(num_iterations=2), engine=Engine())
    # the hits of the unrelated ones are known before the last iteration
    assert [next(found)[0] for _ in range(3)] == records[:3] and len(last_run) == 1
    assert next(found)[0] is records[3]


def test_members_of_families_have_small_evalues(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    settings = SearchSettings(num_iterations=2, comp_bias_corr=False, evalue=10.0)
    evalues = np.sort([hit.evalue for hit in search(query, database, replace(settings, num_iterations=1))])
    limit = float(evalues[len(evalues) // 2])
    searched = ProfileSearch(database, replace(settings, e_profile=limit), CpuEngine(), False, 10.0)
    (result,) = searched.run([initial_profile(query, settings)], lambda pairs: None)
    # without corrections, the same E-value decides
    assert result.is_member.tolist() == (result.hits.evalues <= limit).tolist()
    assert 0 < sum(result.is_member) < len(result.is_member)


class FailingEngine(AheadEngine):
    """Fails for the last queries of the first iteration, which the second iteration need not wait for."""

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        is_first = not self._runs
        for number, candidates in enumerate(super().run(queries, request)):
            if is_first and number == 2:
                raise RuntimeError("the GPU has been lost")
            yield candidates


def test_errors_of_the_last_queries_of_an_iteration(family: tuple[FastaRecord, TargetDatabase]) -> None:
    query, database = family
    with pytest.raises(RuntimeError, match="has been lost"):
        list(search_many([query] * 4, database, SearchSettings(num_iterations=3), engine=FailingEngine(2)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("last results")]


@pytest.mark.parametrize("fault", ["", "killed", "replaced"])
def test_families_of_processes_equal_those_of_threads(
    family: tuple[FastaRecord, TargetDatabase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    query, database = family
    engine, here = GpuLikeEngine(), builder._update
    processes = engine.processes = DatabaseProcesses()
    monkeypatch.setattr(database_processes, "_MIN_QUERIES", 4)
    built_here: list[bool] = []

    def update(*arguments: Any) -> Any:
        built_here.append(True)
        return here(*arguments)

    # found by the same name in other processes
    update.__module__, update.__qualname__ = here.__module__, here.__qualname__
    monkeypatch.setattr(builder, "_update", update)
    # a single query is not worth the start of a process
    list(search_many([query], database, SearchSettings(num_iterations=3, threads=2), engine=engine))
    assert not processes.have_started
    if fault == "replaced":
        # processes find another database in its folder
        (tmp_path / "other.fasta").write_text(">other\nMKTAYIAKQR\n")
        build_database([tmp_path / "other.fasta"], tmp_path / "db", BuildSettings(mask=False, threads=1))
        database = replace(database, path=tmp_path / "db")
    settings = SearchSettings(num_iterations=3, threads=2)
    if fault == "killed":
        processes.prepare(database, 3, 2, len)
        processes.call(database, len)
        pool: Any = processes._pool
        pool.terminate()
    records = [query, FastaRecord("half", query.sequence[:60]), FastaRecord("other", query.sequence[60:])]
    found = list(search_many(records, database, settings, engine=engine))
    assert processes.have_started and bool(built_here) == (fault != "")
    expected = list(search_many(records, database, settings))
    for (record, hits), (other, other_hits) in zip(found, expected, strict=True):
        assert record is other and hits.evalues.tolist() == other_hits.evalues.tolist()
        assert hits.targets.tolist() == other_hits.targets.tolist() and len(hits) > 10
        assert hits.alignments.runs.tolist() == other_hits.alignments.runs.tolist()
