"""Texts of hits: made in threads or processes, by a rule, with the same content and in order."""

import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from foldcli.pipeline.search import hit_texts
from foldcli.pipeline.search.hit_texts import TextMaker, TextProcesses, map_hits
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.hits.search_settings import AlignmentFilter, SearchSettings
from msa.io.fasta import FastaRecord

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERIES = [FastaRecord(f"q{k}", UBIQUITIN[: 30 + k]) for k in range(40)]
SEARCH = SearchSettings(threads=4)
MAKE = TextMaker(AlignmentSettings(SEARCH, AlignmentFilter()))


class GpuLikeEngine(CpuEngine):
    """An engine whose threads other Python code delays."""

    drives_gpus = True


@pytest.fixture
def database(tmp_path: Path) -> TargetDatabase:
    return build(tmp_path / "db", f">a\n{UBIQUITIN}\n>b\n{UBIQUITIN[:60]}\n>c\n{UBIQUITIN[10:]}\n")


def build(folder: Path, fasta: str) -> TargetDatabase:
    fasta_path = folder.with_suffix(".fasta")
    fasta_path.write_text(fasta)
    build_database([fasta_path], folder, BuildSettings(threads=1))
    return TargetDatabase.open(folder)


def started(searcher: LocalSearcher) -> int:
    """Return the number of processes that make texts for a searcher."""
    pool: Any = searcher._processes._pool
    return 0 if pool is None else len(pool._services)


def test_processes_make_the_texts_of_many_queries_on_gpus(
    database: TargetDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hit_texts, "_MIN_PROCESS_QUERIES", 50)
    expected = [(query, MAKE(query, hits)) for query, hits in here(database).search_many(QUERIES, SEARCH)]
    for engine, processes in ((CpuEngine(), 0), (GpuLikeEngine(), 2)):
        searcher = LocalSearcher(database, engine)
        assert list(searcher.map_hits(QUERIES, SEARCH, MAKE)) == expected
        assert started(searcher) == 0, "few queries so far"
        with monkeypatch.context() as patch:
            if processes:
                patch.setattr(TextMaker, "__call__", pytest.fail)
            assert list(searcher.map_hits(QUERIES, SEARCH, MAKE)) == expected
        assert started(searcher) == processes
    # they stay for later searches, and those of the first of several databases
    assert list(searcher.alone().map_hits(QUERIES[:1], SEARCH, MAKE)) == expected[:1]
    assert started(searcher.alone()) == 2


def here(database: TargetDatabase) -> LocalSearcher:
    return LocalSearcher(database, CpuEngine())


def test_processes_are_not_started_for_one_thread_or_a_database_with_others(database: TargetDatabase) -> None:
    assert TextProcesses().pool(database, 1000, 1) is None
    assert TextProcesses().pool(database.with_companions([database]), 1000, 8) is None


def test_text_whose_process_fails_is_made_here(database: TargetDatabase, tmp_path: Path) -> None:
    ((query, hits),) = here(database).search_many(QUERIES[:1], SEARCH)
    expected = [(query, MAKE(query, hits))]

    def make(pool: Any) -> Any:
        return list(map_hits(MAKE, iter([(query, hits)]), SEARCH, pool))

    processes = TextProcesses()
    pool: Any = processes.pool(database, 1000, 2)
    assert processes.pool(database, 1, 2) is pool and make(pool) == expected
    (service,) = pool._services.values()
    service.process.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, service.process.kill).start()
    assert make(pool) == expected
    pool.close()
    # processes that open the database after it has been replaced, or do not find it
    other = build(tmp_path / "other", f">z\n{UBIQUITIN}\n" * 3)
    shutil.rmtree(database.path)
    pool = TextProcesses().pool(database, 1000, 2)
    assert make(pool) == expected
    pool.terminate()
    other.path.rename(database.path)
    pool = TextProcesses().pool(database, 1000, 2)
    assert make(pool) == expected
    pool.close()
