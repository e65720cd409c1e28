"""Tests of runs: every kind of input, searches, and the order of targets."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.targets import TargetInput
from foldcli.pipeline.runs.dry_run import DONE, TO_DO
from foldcli.pipeline.search.chain_search import ChainSearch, ChainSearchResult
from foldcli.pipeline.search.searcher import LocalSearcher
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from tests.foldcli.pipeline.runs.runs import QUERY, Runs

pytestmark = pytest.mark.usefixtures("one_thread")


def test_query_without_known_residues_is_refused(tmp_path: Path, searcher: LocalSearcher) -> None:
    (tmp_path / "x.a3m").write_text(">x\nXXBZUOJ\n>y\nMKVLLAG\n")
    alignment = AlignmentTarget("q", (str(tmp_path / "x.a3m"),))
    for runs, target in (
        (Runs(tmp_path), alignment),
        (Runs(tmp_path, searcher), FastaRecord("x", "XXBZUOJ")),
    ):
        assert "none of the twenty residues" in runs.refusal(target)
        with pytest.raises(InputError, match="none of the twenty residues"):
            runs.action(target)
    assert not list(tmp_path.glob("out/q/*"))


def cached_target(finished: Runs) -> TargetInput:
    ((cached,),) = CacheIndex(finished.folder / "cache").targets.values()
    return cached


def alignment_file(finished: Runs) -> TargetInput:
    return AlignmentTarget("q", (str(finished.files.path("alignment")),))


def entry_file(finished: Runs) -> TargetInput:
    ((cached,),) = CacheIndex(finished.folder / "cache").targets.values()
    return AlignmentTarget("q", (str(cached.path),))


def standard_input(finished: Runs) -> TargetInput:
    return AlignmentTarget("q", ("-",), finished.files.path("alignment").read_bytes())


def test_finished_query_records_its_hits_and_leaves_no_work_folder(finished_one: Runs) -> None:
    done = finished_one.done()
    assert (done["facts"]["search"]["hits"], done["facts"]["feature_cache_hit"]) == (2, False)
    assert not finished_one.files.work_folder.exists() and not finished_one.files.lock_path.exists()


@pytest.mark.parametrize(
    "make_input",
    [
        alignment_file,
        pytest.param(cached_target, marks=pytest.mark.slow),
        pytest.param(entry_file, marks=pytest.mark.slow),
        pytest.param(standard_input, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_input_is_finished_once(
    make_input: Callable[[Runs], TargetInput], finished_one: Runs, tmp_path: Path
) -> None:
    target_input = make_input(finished_one)
    shutil.copytree(finished_one.folder / "cache", tmp_path / "cache")
    new_runs = Runs(tmp_path)
    assert new_runs.action(target_input) == TO_DO
    new_runs.run(target_input)
    assert new_runs.action(target_input) == DONE
    # every input is the same alignment
    assert new_runs.done()["facts"]["feature_cache_hit"]
    scores = [path.read_bytes() for path in finished_one.files.folder.glob("*_scores_*")]
    assert [path.read_bytes() for path in new_runs.files.folder.glob("*_scores_*")] == scores
    times = new_runs.times()
    new_runs.run(target_input)
    assert new_runs.times() == times


def after_search(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Call an action when a run has searched a target, and has not locked it yet."""
    search_ahead = ChainSearch.search_ahead

    def search_then_act(*arguments: Any) -> Iterator[ChainSearchResult[Any]]:
        for result in search_ahead(*arguments):
            monkeypatch.undo()
            action()
            yield result

    monkeypatch.setattr(ChainSearch, "search_ahead", search_then_act)


@pytest.mark.slow
def test_target_that_another_run_publishes_after_its_search_is_continued(
    tmp_path: Path, searcher: LocalSearcher, finished_two: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, searcher)
    after_search(monkeypatch, lambda: runs.run(models=(3,)))
    runs.run(models=(3, 4))
    assert runs.contents() == finished_two.contents()


def test_staged_files_of_another_run_are_replaced(
    tmp_path: Path, searcher: LocalSearcher, finished_one: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, searcher)

    def stage_others() -> None:
        runs.files.search_folder.mkdir(parents=True)
        runs.files.staged_path("alignment").write_text(">q\nAC\n")
        runs.files.staged_path("templates").write_text("rank\n")

    after_search(monkeypatch, stage_others)
    runs.run()
    assert runs.contents() == finished_one.contents()


def test_same_sequence_is_searched_once_for_all_folders(
    tmp_path: Path, searcher: LocalSearcher, finished_one: Runs
) -> None:
    shutil.copytree(finished_one.folder / "cache", tmp_path / "cache")

    class NoSearch(LocalSearcher):
        def search_many(self, *arguments: Any) -> Iterator[Any]:
            pytest.fail("searched again")

    runs = Runs(tmp_path, NoSearch(searcher.database, searcher.engine))
    runs.run(FastaRecord("other name", QUERY.sequence))
    names = [line[1:] for line in runs.files.path("alignment").read_text().splitlines() if line[0] == ">"]
    before = finished_one.files.path("alignment").read_text()
    assert names[0] == "other name" and names[1:] == [
        line[1:] for line in before.splitlines()[1:] if line[0] == ">"
    ]
    table = re.sub(r"^q\t", "other\t", finished_one.files.path("hits").read_text(), flags=re.MULTILINE)
    assert runs.files.path("hits").read_text() == table


@pytest.mark.parametrize("name", ["chain.a3m.gz", "chain.m8.gz"])
def test_damaged_alignment_of_the_cache_is_removed_and_made_again(
    tmp_path: Path, searcher: LocalSearcher, finished_one: Runs, name: str
) -> None:
    shutil.copytree(finished_one.folder / "cache", tmp_path / "cache")
    (stored,) = tmp_path.glob(f"cache/alignments/*/*/{name}")
    stored.write_bytes(stored.read_bytes()[:-9])
    runs = Runs(tmp_path, searcher)
    message = f"{stored}: truncated gzip file; it was removed, and the same command searches again"
    assert runs.refusal() == message
    runs.run()
    assert runs.contents() == finished_one.contents()


def test_edited_alignment_is_searched_again(runs: Runs) -> None:
    before = runs.contents()
    runs.files.path("alignment").write_text(f">q\n{QUERY.sequence}\n")
    runs.run(models=(3, 4))
    assert (
        runs.contents().items()
        >= {name: content for name, content in before.items() if name.endswith((".a3m", ".m8"))}.items()
    )
