"""Tests of the search of a target of `fold`: its files, and when it is searched again."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cuda.driver import DriverError
from foldcli.inputs.complexes import chain_query
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.hit_texts import HitTexts
from foldcli.pipeline.search.searcher import JoinedSearcher, LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.order import FIRST_BATCH, LARGE_BATCH
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import MissingError
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import AlignmentTooLarge
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord
from msa.search.families.family import initial_profile

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
QUERY = FastaRecord("q", UBIQUITIN)


def build(folder: Path, fasta: str) -> TargetDatabase:
    (folder / "t.fasta").write_text(fasta)
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def make_stage(database: TargetDatabase, row_filter: AlignmentFilter) -> SearchStage:
    return SearchStage(LocalSearcher(database, CpuEngine()), AlignmentSettings(SearchSettings(), row_filter))


def search(stage: SearchStage, folder: Path) -> TargetRun:
    """Search a target, unless the cache answers its request, stage its files, and return it."""
    target = TargetRun(TargetFiles("q", folder / "out"), QUERY)
    store = ChainStore(CacheStore(folder / "cache", stage.request))
    with TargetLocks(Event()) as locks:
        for result in ChainSearch(stage, store, locks).search_ahead([target], lambda target: [target.input]):
            assert result.error is None
    alignment = store.read(chain_query(QUERY)).decode()
    store.stage(target, {"q": QUERY}, lambda stream: stream.write(alignment))
    return target


def test_filter_removes_rows_of_the_alignment_and_not_of_the_table(tmp_path: Path) -> None:
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>half\n{UBIQUITIN[:40]}\n")

    def rows(**filters: Any) -> list[str]:
        target = search(make_stage(database, AlignmentFilter(**filters)), tmp_path)
        assert len(target.files.staged_path("hits").read_text().splitlines()) == 3
        assert target.facts.search.hits == 3
        lines = target.files.staged_path("alignment").read_text().splitlines()
        return [line[1:].split("\t")[0] for line in lines if line.startswith(">")]

    assert rows() == ["query", "nedd8", "half"]
    # with another filter the existing files are replaced
    assert rows(cov=0.8) == ["query", "nedd8"]
    assert rows(qid=0.8) == ["query", "half"]
    ((stored, modified),) = [
        (path, path.stat().st_mtime_ns)
        for path in tmp_path.glob("cache/**/*.a3m.gz")
        if b"nedd8" not in read_bytes(path)
    ]
    assert rows(qid=0.8) == ["query", "half"] and stored.stat().st_mtime_ns == modified


def test_limit_of_hits_is_recorded_of_stored_searches_too(tmp_path: Path) -> None:
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n")
    settings = AlignmentSettings(SearchSettings(max_seqs=1), AlignmentFilter())
    stage = SearchStage(LocalSearcher(database, CpuEngine()), settings)
    for _ in range(2):
        target = search(stage, tmp_path)
        assert target.files.staged_path("hits").read_text().count("\n") == 1
        assert (target.facts.search.hits, target.facts.search.capped) == (1, 1)
        assert target.warnings == ["the search reached --max-seqs 1; further sequences were left out"]


class RecordingSearcher(LocalSearcher):
    """A searcher that records the numbers of queries."""

    def search_many(self, queries: Sequence[FastaRecord], *arguments: Any) -> Iterator[Any]:
        """Record the number of queries, and search."""
        self.__dict__.setdefault("sizes", []).append(len(queries))
        return super().search_many(queries, *arguments)


def test_first_batches_are_small_and_the_others_wait(tmp_path: Path) -> None:
    searcher = RecordingSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = [FastaRecord(f"t{k}", UBIQUITIN[: 20 + k]) for k in range(FIRST_BATCH * 3 + 1)]
    store = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    sizes: list[int] = searcher.__dict__.setdefault("sizes", [])
    with TargetLocks(Event()) as locks:
        searched = ChainSearch(stage, store, locks).search_ahead(chains, lambda chain: [chain])
        assert next(searched).target == chains[0] and sizes == [FIRST_BATCH]
        assert [result.target for result in searched] == chains[1:]
    assert sizes == [FIRST_BATCH, 2 * FIRST_BATCH, 1]


@pytest.mark.parametrize("write_threads", [0, 3])
def test_errors_of_writing_stay_with_their_queries(tmp_path: Path, write_threads: int) -> None:
    searcher = LocalSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    settings = AlignmentSettings(SearchSettings(), AlignmentFilter())
    stage = SearchStage(searcher, settings, show_progress=False, write_threads=write_threads)

    class Store:
        def is_finished(self, name: str, query: FastaRecord) -> bool:
            return False

        def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
            if name == "b":
                raise OSError("full")

    queries = [(name, QUERY) for name in "abcd"]
    results = [(each.name, str(each.error)) for each in stage.run(queries, Store())]
    assert results == [("a", "None"), ("b", "full"), ("c", "None"), ("d", "None")]


class Written(list[str]):
    """A store that keeps the names of the queries."""

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return False."""
        return False

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Add the name."""
        self.append(name)


@pytest.mark.parametrize("several_databases", [False, True])
@pytest.mark.parametrize("write_threads", [0, 2])
def test_error_before_the_first_result_stays_with_its_query(
    tmp_path: Path, several_databases: bool, write_threads: int
) -> None:
    local = LocalSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    searcher = JoinedSearcher([local, local]) if several_databases else local
    settings = SearchSettings(profile_gap_open=3)
    stage = SearchStage(
        searcher, AlignmentSettings(settings, AlignmentFilter()), show_progress=False,
        write_threads=write_threads,
    )  # fmt: skip
    profile = initial_profile(QUERY, settings).profile
    families = {name: ProfileRecord(name, UBIQUITIN, profile, "p", of_family=True) for name in "cf"}
    queries = [(name, families.get(name, replace(QUERY, header=name))) for name in "abcdefg"]
    queries[4] = ("e", replace(QUERY, header="e", sequence="M"))
    store = Written()
    errors = {each.name: str(each.error) for each in stage.run(queries, store) if each.error is not None}
    assert list(errors) == ["c", "e", "f"] and sorted(store) == ["a", "b", "d", "g"]
    assert errors["c"] == errors["f"] and "statistics" in errors["c"]
    assert "'e' has 1 residue" in errors["e"]


class LostSearcher(RecordingSearcher):
    """A searcher that loses its engine after the first hits."""

    def search_many(self, queries: Sequence[FastaRecord], *arguments: Any) -> Iterator[Any]:
        """Yield the first hits."""
        yield next(super().search_many(queries, *arguments))
        raise MissingError("the GPU was lost", "Restart.")


class FullSearcher(RecordingSearcher):
    """A searcher whose GPU has no memory for alignments of one query."""

    def search_many(self, queries: Sequence[FastaRecord], *arguments: Any) -> Iterator[Any]:
        """Yield hits unless there is this query."""
        if any(query.header == "b" for query in queries):
            raise AlignmentTooLarge("the GPU has no memory left for a single alignment")
        yield from super().search_many(queries, *arguments)


def test_an_alignment_that_does_not_fit_fails_its_query_alone(tmp_path: Path) -> None:
    searcher = FullSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    results = list(stage.run([(name, replace(QUERY, header=name)) for name in "abcd"], Written()))
    assert [result.name for result in results if result.error is not None] == ["b"]


def test_errors_of_engine_and_database_are_those_of_all_queries(tmp_path: Path) -> None:
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n")
    settings, queries = (
        AlignmentSettings(SearchSettings(), AlignmentFilter()),
        [(name, QUERY) for name in "abc"],
    )

    def errors(searcher: RecordingSearcher) -> list[str]:
        results = list(SearchStage(searcher, settings, show_progress=False).run(queries, Written()))
        assert [result.name for result in results] == ["a", "b", "c"]
        assert searcher.__dict__["sizes"] == [3]
        return [str(result.error).partition("\n")[0] for result in results]

    assert errors(LostSearcher(database, CpuEngine())) == ["None", *["the GPU was lost"] * 2]
    for path in database.path.iterdir():
        if path.suffix != ".json":
            with path.open("ab") as stream:
                stream.write(b"x")
    found = errors(RecordingSearcher(database, CpuEngine()))
    assert len(set(found)) == 1 and "damaged database" in found[0]


class FailedEngine(CpuEngine):
    """An engine whose GPU fails."""

    def __init__(self, result: str) -> None:
        super().__init__()
        self.result = result

    def run(self, *arguments: Any) -> Iterator[Any]:
        """Fail as the driver does."""
        raise DriverError("cuEventSynchronize", self.result)


@pytest.mark.parametrize(
    ("result", "sizes"),
    [("CUDA_ERROR_ILLEGAL_ADDRESS", [4]), ("CUDA_ERROR_INVALID_VALUE", [4, 2, 1, 1, 2, 1, 1])],
)
def test_failed_gpu_is_not_searched_with_again(result: str, sizes: list[int], tmp_path: Path) -> None:
    searcher = RecordingSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), FailedEngine(result))
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    found = list(stage.run([(name, QUERY) for name in "abcd"], Written()))
    assert all(result in str(each.error) for each in found) and searcher.__dict__["sizes"] == sizes


def test_chains_of_a_large_batch_are_searched_together(tmp_path: Path) -> None:
    searcher = RecordingSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = [FastaRecord(f"c{k}", UBIQUITIN[k % 2 : 10 + k // 2]) for k in range(7)]
    with TargetLocks(Event()) as locks:
        for number, batch in enumerate((LARGE_BATCH, 3)):
            store = ChainStore(CacheStore(tmp_path / f"cache{number}", stage.request))
            search = ChainSearch(stage, store, locks, batch)
            assert [each.target for each in search.search_ahead(chains, lambda chain: [chain])] == chains
    assert searcher.__dict__["sizes"] == [7, 3, 4]


def test_chains_come_as_they_are_searched(tmp_path: Path) -> None:
    searcher = LocalSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    store = ChainStore(CacheStore(tmp_path / "cache", stage.request))
    chains = [FastaRecord(f"c{k}", UBIQUITIN[k:]) for k in range(4)]
    with TargetLocks(Event()) as locks:
        search = ChainSearch(stage, store, locks)
        assert list(search.search_each(chains[1:2])) == [(chains[1], None)]
        searched = search.search_each(chains)
        assert [next(searched) for _ in range(2)] == [(chains[1], None), (chains[0], None)]
        assert not store.is_finished("", chain_query(chains[3]))
        assert list(searched) == [(chain, None) for chain in chains[2:]]
    assert not list(tmp_path.glob("cache/**/.lock"))
