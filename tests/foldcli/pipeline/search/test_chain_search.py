"""Tests of the search of complexes' chains: those that other runs search, and failures."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from foldcli.inputs.complexes import chain_query, split_chains
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.hit_texts import HitTexts, TextMaker
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import LockOwner, TargetLocks
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord, JoinedRecord
from tests.foldcli.pipeline.complexes import PROTEIN_A, PROTEIN_B, CountingSearcher, open_database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    return open_database(tmp_path_factory.mktemp("database"))


def test_chain_that_another_run_searches_is_waited_for(tmp_path: Path, database: LocalSearcher) -> None:
    searcher = CountingSearcher(database)
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    pair = split_chains(JoinedRecord("p", f"{PROTEIN_A}:{PROTEIN_B}", "", "", 1))
    first, second = map(chain_query, pair.chains)
    with TargetLocks(Event()) as other_locks, TargetLocks(Event()) as locks:
        assert other_locks.try_acquire(chains.lock(first))

        def finish_in_other_run() -> None:
            ((_, hits),) = database.search_many([first], SearchSettings())
            chains.write("chain", first, TextMaker(stage.settings)(first, hits))
            other_locks.release(chains.lock(first))

        thread = Timer(0.1, finish_in_other_run)
        thread.start()
        (result,) = ChainSearch(stage, chains, locks).search_ahead(
            [pair], lambda target: target.chains, print
        )
        thread.join()
        assert not chains.lock(first).exists() and not chains.lock(second).exists()
    assert result.target == pair and result.error is None and result.cost is not None
    assert searcher.sequences == [PROTEIN_B]
    assert chains.is_finished("chain", first) and chains.is_finished("chain", second)
    # as a run leaves it that was killed before it released the lock
    chains.lock(first).write_text(json.dumps(vars(replace(LockOwner.this_process(), started=1))))
    with TargetLocks(Event()) as locks:
        (result,) = ChainSearch(stage, chains, locks).search_ahead(
            [pair], lambda target: target.chains, print
        )
        assert result.target == pair and result.cost is None
    assert not chains.lock(first).exists()


class BrokenSearcher(CountingSearcher):
    """A database whose search with one sequence fails."""

    def search_many(
        self, queries: Sequence[FastaRecord], *arguments: Any
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        for query in queries:
            if query.sequence == PROTEIN_B:
                raise OSError("disk on fire")
            yield from super().search_many([query], *arguments)


def test_failed_search_of_a_chain_fails_only_its_complexes(
    tmp_path: Path, database: LocalSearcher, caplog: pytest.LogCaptureFixture
) -> None:
    limited = AlignmentSettings(SearchSettings(max_seqs=1), AlignmentFilter())
    stage = SearchStage(BrokenSearcher(database), limited, show_progress=False)
    chains = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    sequences = {
        "ab": f"{PROTEIN_A}:{PROTEIN_B}",
        "bb": f"{PROTEIN_B}:{PROTEIN_B}",
        "aa": f"{PROTEIN_A}:{PROTEIN_A}",
    }
    named = [
        (name, split_chains(JoinedRecord(name, sequence, "", "", 1))) for name, sequence in sequences.items()
    ]
    with TargetLocks(Event()) as locks:
        results = list(ChainSearch(stage, chains, locks).search_complexes(named, chains.store))
    failed = [(result.name, str(result.error)) for result in results if result.error is not None]
    assert failed == [("ab", "disk on fire"), ("bb", "disk on fire")]
    assert [result.name for result in results] == ["ab", "bb", "aa"]
    stored = chains.store.path("aa", named[2][1])
    assert read_bytes(stored).startswith(f"#31\t2\n>101\n{PROTEIN_A}\n".encode())
    assert "ab_A: the search reached --max-seqs 1" in caplog.text
    assert not list(tmp_path.rglob(".lock"))


def test_nothing_is_locked_while_a_batch_is_collected(tmp_path: Path, database: LocalSearcher) -> None:
    searcher = CountingSearcher(database)
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    new, finished = FastaRecord("new", PROTEIN_A), FastaRecord("finished", PROTEIN_B)
    with TargetLocks(Event()) as locks:
        search = ChainSearch(stage, chains, locks)
        assert [result.target for result in search.search_ahead([finished], lambda chain: [chain])] == [
            finished
        ]
        results = search.search_ahead([new, finished], lambda chain: [chain])
        # the network may work for hours before it takes the next target
        assert next(results).target == finished
        assert not list(tmp_path.rglob(".lock"))
        assert next(results).target == new and searcher.sequences == [PROTEIN_B, PROTEIN_A]


def test_overwriting_searches_each_chain_once_more(tmp_path: Path, database: LocalSearcher) -> None:
    searcher = CountingSearcher(database)
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    targets = [FastaRecord("a", PROTEIN_A), FastaRecord("b", PROTEIN_B), FastaRecord("c", PROTEIN_A)]
    for overwrite, count in ((False, 2), (False, 2), (True, 4)):
        chains = ChainStore(CacheStore(tmp_path / "cache", stage.request, overwrite))
        with TargetLocks(Event()) as locks:
            # batches of one chain, so that the last target comes after the first has been searched
            results = ChainSearch(stage, chains, locks, 1).search_ahead(targets, lambda chain: [chain])
            assert sorted(result.target.header for result in results) == ["a", "b", "c"]
        assert len(searcher.sequences) == count


@pytest.mark.parametrize("content", [b"", bytes(100)])
def test_emptied_files_of_the_cache_are_damaged(tmp_path: Path, content: bytes) -> None:
    request = AlignmentRequest({}, AlignmentSettings(SearchSettings(), AlignmentFilter()))
    chains, query = ChainStore(CacheStore(tmp_path, request)), FastaRecord("q", PROTEIN_A)
    chains.write("q", query, HitTexts(0, False, "", "", 0))
    for read, name in ((chains.read, "chain.a3m.gz"), (partial(chains.read_hits, name="q"), "chain.m8.gz")):
        chains.store.path("chain", query).with_name(name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}: not a gzip file; it was removed"):
            read(query)


def test_chain_whose_files_others_remove_is_an_invalid_input(tmp_path: Path, database: LocalSearcher) -> None:
    stage = SearchStage(database, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains, query = ChainStore(CacheStore(tmp_path / "cache", stage.request)), FastaRecord("q", PROTEIN_A)
    chains.write(
        "q", query, TextMaker(stage.settings)(query, next(database.search_many([query], SearchSettings()))[1])
    )
    path = chains.store.path("chain", query)
    path.write_bytes(path.read_bytes()[:-9])
    # the first target removes the damaged file
    for reason in ("truncated gzip file; it was removed", "was removed meanwhile"):
        with pytest.raises(InputError, match=f"{reason}, and the same command|{reason}; the same command"):
            chains.read(query)
    assert not chains.is_finished("q", query)
