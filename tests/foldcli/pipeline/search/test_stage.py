"""Tests of the search of a target of `fold`: its files, and when it is searched again."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from foldcli.inputs.complexes import chain_query
from foldcli.outputs.done import DoneRecord
from foldcli.outputs.layout import FileKind, LayoutName, TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.search.chain_search import LARGE_BATCH, ChainSearch, ChainStore
from foldcli.pipeline.search.hit_texts import HitTexts
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, TargetStore
from foldcli.pipeline.search.targets import TargetSearch
from foldcli.pipeline.targets.alignment_settings import FIRST_BATCH, AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.hits.search_settings import AlignmentFilter, SearchSettings
from msa.io.fasta import FastaRecord

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
QUERY = FastaRecord("q", UBIQUITIN)


def build(folder: Path, fasta: str) -> TargetDatabase:
    (folder / "t.fasta").write_text(fasta)
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def make_stage(database: TargetDatabase, row_filter: AlignmentFilter) -> SearchStage:
    return SearchStage(LocalSearcher(database, CpuEngine()), AlignmentSettings(SearchSettings(), row_filter))


def search(stage: SearchStage, folder: Path, layout: LayoutName = "default") -> TargetRun:
    """Search a target, unless its files answer the same request, and return it."""
    target = TargetRun(TargetFiles("q", folder / "out", layout), QUERY)
    store = TargetStore({"q": target}, stage.request)
    if not store.is_finished("q", QUERY):
        for result in stage.run([("q", QUERY)], store):
            result.raise_error()
    return target


def test_filter_removes_rows_of_the_alignment_and_not_of_the_table(tmp_path: Path) -> None:
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>half\n{UBIQUITIN[:40]}\n")

    def rows(**filters: Any) -> list[str]:
        target = search(make_stage(database, AlignmentFilter(**filters)), tmp_path)
        assert len(target.files.staged_path("hits").read_text().splitlines()) == 3
        assert target.facts["search"]["hits"] == 3
        lines = target.files.staged_path("alignment").read_text().splitlines()
        return [line[1:].split("\t")[0] for line in lines if line.startswith(">")]

    assert rows() == ["q", "nedd8", "half"]
    # with another filter the existing files are replaced
    assert rows(cov=0.8) == ["q", "nedd8"]
    assert rows(qid=0.8) == ["q", "half"]
    staged = TargetFiles("q", tmp_path / "out").staged_path("alignment")
    modified = staged.stat().st_mtime_ns
    assert rows(qid=0.8) == ["q", "half"] and staged.stat().st_mtime_ns == modified


def test_search_of_a_finished_target_is_reused_if_its_files_are_unchanged(tmp_path: Path) -> None:
    stage = make_stage(build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n"), AlignmentFilter())
    target = search(stage, tmp_path, "colabfold")
    a3m = target.files.staged_path("alignment")
    assert a3m.read_text().startswith(f"#{len(UBIQUITIN)}\t1\n>q\n")
    kinds: tuple[FileKind, ...] = ("alignment", "hits")
    for kind in kinds:
        target.files.path(kind).write_bytes(target.files.staged_path(kind).read_bytes())
    model = ModelResult("tag", 50.0, None, 0, 1.0, "key")
    record = DoneRecord("q", "key", {}, "auto", [model], [], facts={"search": target.facts["search"]})
    record.write(target.files.path("done"))
    modified = target.files.path("alignment").stat().st_mtime_ns
    shutil.rmtree(target.files.work_folder)
    again = search(stage, tmp_path, "colabfold")
    assert again.facts["search"] == target.facts["search"]
    assert a3m.stat().st_mtime_ns == modified, "it is the published file"
    shutil.rmtree(target.files.work_folder)
    target.files.path("hits").write_text("edited")
    search(stage, tmp_path, "colabfold")
    assert target.files.staged_path("hits").read_text() != "edited"


class RecordingSearcher(LocalSearcher):
    """A searcher that records the numbers of queries."""

    def search_many(self, queries: Sequence[FastaRecord], *arguments: Any) -> Iterator[Any]:
        """Record the number of queries, and search."""
        self.__dict__.setdefault("sizes", []).append(len(queries))
        return super().search_many(queries, *arguments)


def test_first_batches_are_small_and_the_others_wait(tmp_path: Path) -> None:
    searcher = RecordingSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    targets = {
        name: TargetRun(TargetFiles(name, tmp_path / "out"), FastaRecord(name, UBIQUITIN[: 20 + number]))
        for number, name in enumerate(f"t{k}" for k in range(FIRST_BATCH * 3 + 1))
    }
    store, plan = TargetStore(targets, stage.request), object()
    sizes: list[int] = searcher.__dict__.setdefault("sizes", [])
    with TargetLocks(Event()) as locks:
        search = TargetSearch(stage, store, locks, lambda target: plan, pytest.fail, lambda text: None)  # type: ignore[arg-type]
        searched = search.search_ahead(targets.values())
        assert next(searched).name == "t0" and sizes == [FIRST_BATCH]
        assert [target.name for target in searched] == list(targets)[1:]
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


def test_chains_of_a_large_batch_are_searched_together(tmp_path: Path) -> None:
    searcher = RecordingSearcher(build(tmp_path, f">ubq\n{UBIQUITIN}\n"), CpuEngine())
    stage = SearchStage(searcher, AlignmentSettings(SearchSettings(), AlignmentFilter()), show_progress=False)
    chains = [FastaRecord(f"c{k}", UBIQUITIN[k % 2 : 10 + k // 2]) for k in range(7)]
    with TargetLocks(Event()) as locks:
        for number, batch in enumerate((LARGE_BATCH, 3)):
            store = ChainStore(CacheStore(tmp_path / f"cache{number}", stage.request))
            search = ChainSearch(stage, store, locks, batch)
            assert [each.target for each in search.search_ahead(chains, lambda chain: [chain])] == chains
    assert searcher.__dict__["sizes"] == [7, 3, 3, 1]


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
