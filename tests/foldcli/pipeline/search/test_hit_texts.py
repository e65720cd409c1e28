"""Texts of hits: made in threads or processes, by a rule, with the same content and in order."""

import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from foldcli.pipeline.search.hit_texts import TextMaker, map_hits
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.filter_settings import AlignmentFilter
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines import database_processes
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERIES = [FastaRecord(f"q{k}", UBIQUITIN[: 30 + k]) for k in range(40)]
SEARCH = SearchSettings(threads=4)
MAKE = TextMaker(AlignmentSettings(SEARCH, AlignmentFilter()))


class GpuLikeEngine(CpuEngine):
    """An engine whose threads other Python code delays."""

    drives_gpus = True  # type: ignore[misc]

    def __init__(self) -> None:
        self.processes = DatabaseProcesses()


@pytest.fixture
def database(tmp_path: Path) -> TargetDatabase:
    return build(tmp_path / "db", f">a\n{UBIQUITIN}\n>b\n{UBIQUITIN[:60]}\n>c\n{UBIQUITIN[10:]}\n")


def build(folder: Path, fasta: str) -> TargetDatabase:
    fasta_path = folder.with_suffix(".fasta")
    fasta_path.write_text(fasta)
    build_database([fasta_path], folder, BuildSettings(threads=1))
    return TargetDatabase.open(folder)


def test_processes_make_the_texts_of_many_queries_on_gpus(
    database: TargetDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_processes, "_MIN_QUERIES", 50)
    expected = [(query, MAKE(query, hits)) for query, hits in here(database).search_many(QUERIES, SEARCH)]
    assert list(here(database).map_hits(QUERIES, SEARCH, MAKE)) == expected
    searcher = LocalSearcher(database, GpuLikeEngine())
    for started in (False, True):
        with monkeypatch.context() as patch:
            if started:
                patch.setattr(TextMaker, "__call__", pytest.fail)
            assert list(searcher.map_hits(QUERIES, SEARCH, MAKE)) == expected
        assert searcher.engine.processes.have_started == started
    # they stay for later searches, and the first of several databases
    assert list(searcher.alone().map_hits(QUERIES[:1], SEARCH, MAKE)) == expected[:1]
    assert searcher.alone().processes is searcher.processes


def test_hits_in_several_databases_are_not_sent(database: TargetDatabase) -> None:
    processes = started(database)
    both = database.with_companions([database])
    ((_, texts),) = found = list(
        map_hits(MAKE, here(both).search_many(QUERIES[:1], SEARCH), SEARCH, processes)
    )
    assert texts.count == 3
    processes._pool.terminate()
    assert list(map_hits(MAKE, here(both).search_many(QUERIES[:1], SEARCH), SEARCH, processes)) == found
    stored = Hits.from_sequence(30, list(next(here(database).search_many(QUERIES[:1], SEARCH))[1]))
    ((_, texts),) = map_hits(MAKE, iter([(QUERIES[0], stored)]), SEARCH, processes)
    assert texts.count == 3


def here(database: TargetDatabase) -> LocalSearcher:
    return LocalSearcher(database, CpuEngine())


def started(database: TargetDatabase) -> Any:
    processes = DatabaseProcesses()
    processes.prepare(database, 1000, 2, len)
    assert processes.have_started
    return processes


def test_processes_are_not_started_for_one_thread_or_a_database_with_others(database: TargetDatabase) -> None:
    processes = DatabaseProcesses()
    processes.prepare(database, 1000, 1, len)
    processes.prepare(database.with_companions([database]), 1000, 8, len)
    assert not processes.have_started
    assert processes.call(database, len) == 3


def test_text_whose_process_fails_is_made_here(database: TargetDatabase, tmp_path: Path) -> None:
    ((query, hits),) = here(database).search_many(QUERIES[:1], SEARCH)
    expected = [(query, MAKE(query, hits))]

    def make(processes: DatabaseProcesses) -> Any:
        return list(map_hits(MAKE, iter([(query, hits)]), SEARCH, processes))

    processes = started(database)
    assert make(processes) == expected
    (service,) = processes._pool._services.values()
    service.process.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, service.process.kill).start()
    assert make(processes) == expected
    del processes
    service.wait()
    # processes that open the database after it has been replaced, or do not find it
    other = build(tmp_path / "other", f">z\n{UBIQUITIN}\n" * 3)
    shutil.rmtree(database.path)
    assert make(started(database)) == expected
    other.path.rename(database.path)
    assert make(started(database)) == expected


def test_processes_end_with_the_engine(database: TargetDatabase) -> None:
    processes = started(database)
    assert processes.call(database, len) == 3
    (service,) = processes._pool._services.values()
    del processes
    assert service.process.wait(timeout=60) == 0
