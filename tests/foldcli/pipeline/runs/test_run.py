"""Tests of runs: every kind of input, targets that are finished, extended or refused, and damaged records."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.targets import TargetInput
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.model_files import restage_model
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.runs.dry_run import DONE, RESUMED, TO_DO
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.targets import TargetSearch
from foldcli.pipeline.targets.locks import LockOwner, TargetLocks
from msa.base.errors import InputError
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from tests.foldcli.pipeline.runs.runs import QUERY, UBIQUITIN, Runs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>half\n{UBIQUITIN[:25]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return LocalSearcher(TargetDatabase.open(folder / "db"), CpuEngine())


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


@pytest.fixture(scope="module")
def finished_one(tmp_path_factory: pytest.TempPathFactory, searcher: LocalSearcher) -> Runs:
    """Finish a target with one model; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("one"), searcher)
    runs.run()
    return runs


@pytest.fixture(scope="module")
def finished_two(tmp_path_factory: pytest.TempPathFactory, searcher: LocalSearcher) -> Runs:
    """Finish a target with two models; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("two"), searcher)
    runs.run(models=(3, 4))
    return runs


def copy_of(finished: Runs, folder: Path) -> Runs:
    """Copy a finished target, preserving the modification times of its files."""
    shutil.copytree(finished.folder, folder, dirs_exist_ok=True)
    return Runs(folder, finished.searcher)


@pytest.fixture
def runs(tmp_path: Path, finished_one: Runs) -> Runs:
    """Copy the finished target with one model."""
    return copy_of(finished_one, tmp_path / "runs")


@pytest.fixture
def runs_of_two(tmp_path: Path, finished_two: Runs) -> Runs:
    """Copy the finished target with two models."""
    return copy_of(finished_two, tmp_path / "runs")


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


def test_results_of_other_settings_are_replaced_only_with_overwrite(runs: Runs) -> None:
    before, times = runs.contents(), runs.times()
    message = runs.refusal(num_recycles=1)
    assert runs.times() == times
    assert "out/q holds a model made with other settings (predict.num_recycle 0, now 1)" in message
    assert message.endswith("; --overwrite replaces it, or choose another --out")
    assert runs.action(num_recycles=1, overwrite=True) == f"{TO_DO}, replaces 1 model"
    runs.run(num_recycles=1, overwrite=True)
    assert runs.done()["ranking"][0]["num_recycles"] == 1 and runs.contents() != before
    runs.run(overwrite=True)
    assert runs.contents() == before


def test_results_of_another_sequence_are_not_replaced(runs: Runs) -> None:
    before = runs.contents()
    assert "query" in runs.refusal(FastaRecord("q", UBIQUITIN[5:35]))
    assert runs.contents() == before


def test_further_models_are_added_and_finished_ones_kept(runs: Runs, tmp_path: Path) -> None:
    seconds = runs.done()["ranking"][0]["seconds"]
    runs.run(models=(4,), random_seed=1)
    runs.run(models=(3, 4), num_seeds=2)
    assert sorted(runs.tags()) == [f"alphafold2_ptm_model_{n}_seed_00{s}" for n in (3, 4) for s in (0, 1)]
    first_model = next(e for e in runs.done()["ranking"] if e["tag"] == "alphafold2_ptm_model_3_seed_000")
    assert first_model["seconds"] == seconds, "the model was not predicted again"
    at_once = Runs(tmp_path / "other", runs.searcher)
    # of earlier models
    for name in ("q.html", "q_plddt.png", "q_templates.tsv"):
        at_once.files.folder.mkdir(parents=True, exist_ok=True)
        (at_once.files.folder / name).touch()
    at_once.run(models=(3, 4), num_seeds=2)
    assert at_once.contents() == runs.contents()
    times = runs.times()
    runs.run(models=(4,))
    assert runs.times() == times, "nothing is left to do"


def test_other_ranking_only_renames_the_models(runs_of_two: Runs) -> None:
    first = runs_of_two.done()
    runs_of_two.run(models=(3, 4), rank="ptm")
    second = runs_of_two.done()
    assert second["rank_by"] == "ptm" and second["ranking"][0]["ptm"] >= second["ranking"][1]["ptm"]
    assert {e["tag"]: e["seconds"] for e in first["ranking"]} == {
        e["tag"]: e["seconds"] for e in second["ranking"]
    }
    assert second["facts"]["residues"] == 30


# tests/foldcli/outputs/test_done.py reads other damaged ones
@pytest.mark.parametrize("content", ["{", '{"format": 1}'])
def test_damaged_done_json_is_one_warning_and_the_target_is_predicted_again(
    runs: Runs, content: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, done = runs.contents(), runs.done()
    runs.files.path("done").write_text(content)
    monkeypatch.setattr("foldcli.logs.logger.propagate", True)
    caplog.clear()
    assert runs.action() in (TO_DO, RESUMED)
    runs.run()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "q.done.json: unusable" in warning and "\n" not in warning
    assert runs.contents() == before and runs.done()["fingerprint"] == done["fingerprint"]


def test_model_with_a_missing_file_is_predicted_again(runs_of_two: Runs) -> None:
    before = runs_of_two.contents()
    next(runs_of_two.files.folder.glob("*_rank_002_*.cif")).unlink()
    runs_of_two.run(models=(3, 4))
    assert runs_of_two.contents() == before


def test_record_set_aside_by_a_killed_run_is_published_again(runs: Runs) -> None:
    before, ranking = runs.contents(), runs.tags()
    # as a run with a further model leaves it, if it is killed when it begins to publish
    runs.files.replaced_record.parent.mkdir()
    runs.files.path("done").replace(runs.files.replaced_record)
    runs.run()
    assert (runs.contents(), runs.tags()) == (before, ranking)
    assert not runs.files.work_folder.exists()


@pytest.mark.parametrize("name", [".lock", ".lock.0123456789abcdef.tmp", ".work/search/search.json"])
def test_files_of_a_run_killed_after_it_finished_a_target_are_removed(runs: Runs, name: str) -> None:
    before = runs.times()
    path = runs.files.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # of a process with this id that has ended
    path.write_text(json.dumps(vars(replace(LockOwner.this_process(), started=1))))
    runs.run()
    assert runs.times() == before


def test_finished_target_that_another_run_has_locked_is_skipped(runs: Runs) -> None:
    before = runs.times()
    with TargetLocks(Event()) as locks:
        assert locks.try_acquire(runs.files.lock_path)
        staged = runs.files.staged_path("alignment")
        staged.parent.mkdir(parents=True)
        staged.touch()
        runs.run()
        assert staged.exists() and locks.is_held(runs.files.lock_path)
    shutil.rmtree(runs.files.work_folder)
    assert runs.times() == before


def after_search(monkeypatch: pytest.MonkeyPatch, action: Callable[[TargetRun], None]) -> None:
    """Call an action when a run has searched a target, and does not hold its lock."""
    search_ahead = TargetSearch.search_ahead

    def search_then_act(*arguments: Any) -> Iterator[TargetRun]:
        for target in search_ahead(*arguments):
            monkeypatch.undo()
            action(target)
            yield target

    monkeypatch.setattr(TargetSearch, "search_ahead", search_then_act)


@pytest.mark.slow
def test_search_that_another_run_has_published_is_used(
    tmp_path: Path, searcher: LocalSearcher, finished_two: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, searcher)
    after_search(monkeypatch, lambda target: runs.run(models=(3,)))
    runs.run(models=(3, 4))
    assert runs.contents() == finished_two.contents()


def test_search_that_another_run_has_replaced_is_refused(
    tmp_path: Path, searcher: LocalSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, searcher)
    after_search(monkeypatch, lambda target: target.files.staged_path("alignment").write_text(">q\nAC\n"))
    assert "another run searches it in the same folder with other settings" in runs.refusal()


def test_edited_alignment_is_searched_again(runs: Runs) -> None:
    before = runs.contents()
    runs.files.path("alignment").write_text(f">q\n{QUERY.sequence}\n")
    runs.run(models=(3, 4))
    assert (
        runs.contents().items()
        >= {name: content for name, content in before.items() if name.endswith((".a3m", ".m8"))}.items()
    )


@pytest.mark.parametrize(
    "damaged",
    [
        "search.json",
        "*.result.json",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("q.a3m", "*.pdb")),
    ],
)
def test_damaged_intermediate_files_are_replaced(damaged: str, finished_two: Runs, tmp_path: Path) -> None:
    again = Runs(tmp_path, finished_two.searcher)
    make_intermediate_files(again, finished_two)
    for path in again.files.work_folder.rglob(damaged):
        path.write_text("{" if path.suffix == ".json" else path.read_text()[:-9])
        if path.suffix == ".pdb":
            path.unlink()
    again.run(models=(3, 4))
    assert again.contents() == finished_two.contents()


@pytest.mark.slow
def test_models_of_a_killed_run_keep_their_device(finished_two: Runs, tmp_path: Path) -> None:
    again = Runs(tmp_path, finished_two.searcher)
    make_intermediate_files(again, finished_two)
    target = TargetRun(again.files, QUERY, facts={"device": "NVIDIA H200", "residues": 20})
    target.keep_memory_facts()
    again.run(models=(3, 4))
    assert again.done()["facts"]["device"] == "NVIDIA H200"
    again.run(models=(3, 4), rank="ptm")
    assert again.done()["facts"]["device"] == "NVIDIA H200", "also if all models are kept"


def test_intermediate_files_of_another_input_are_not_published(finished_two: Runs, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    make_intermediate_files(runs, finished_two)
    runs.files.staged_path("templates").touch()
    (tmp_path / "q.a3m").write_text(f">q\n{QUERY.sequence}\n")
    runs.run(AlignmentTarget("q", (str(tmp_path / "q.a3m"),)))
    expected = ("q_scores", "q_unrelaxed", "q.cxc", "q.pml")
    assert not [name for name in runs.contents() if not name.startswith(expected)]


@pytest.mark.parametrize("in_output_folder", [False, True])
def test_overwrite_with_another_input_removes_the_alignment_of_the_earlier_search(
    finished_one: Runs, tmp_path: Path, in_output_folder: bool
) -> None:
    runs = copy_of(finished_one, tmp_path / "runs")
    runs.searcher = None
    path = (
        runs.files.path("alignment")
        if in_output_folder
        else Path(shutil.copy(runs.files.path("alignment"), tmp_path))
    )
    runs.run(AlignmentTarget("q", (str(path),)), overwrite=True)
    left = {
        name for name in runs.contents() if not name.startswith(("q_scores", "q_unrelaxed", "q.cxc", "q.pml"))
    }
    assert left == ({"q.a3m", "q.m8"} if in_output_folder else set())


def test_staged_templates_of_a_run_with_other_settings_are_not_published(
    finished_two: Runs, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, finished_two.searcher)
    make_intermediate_files(runs, finished_two)
    runs.files.staged_path("templates").touch()
    runs.run(models=(3, 4))
    assert runs.contents() == finished_two.contents()


def make_intermediate_files(target: Runs, finished: Runs) -> None:
    """Create the work folder of a run that was killed before it published its models."""
    record = FinishedTarget.read(finished.files.path("done"))
    assert record is not None
    shutil.copytree(finished.files.folder, target.files.folder, dirs_exist_ok=True)
    for rank, result in enumerate(record.ranking, 1):
        restage_model(target.files, rank, result)
    target.files.search_folder.mkdir()
    for kind in ("alignment", "hits"):
        shutil.copy(finished.files.path(kind), target.files.staged_path(kind))  # type: ignore[arg-type]
    (target.files.search_folder / "search.json").write_text(json.dumps(record.facts["search"]))
    for path in target.files.folder.glob("q*"):
        path.unlink()


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path, searcher: LocalSearcher) -> None:
    runs = Runs(tmp_path, searcher)
    folders = (runs.files.folder, runs.files.search_folder, runs.files.staging_folder)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".q.a3m.0123456789abcdef.tmp").touch()
    runs.run()
    assert not list(runs.files.folder.rglob("*.tmp"))
