"""Tests of the preparation of jobs: order, locks of other runs, files of killed runs, and failures."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.facts import Facts
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.runs.preparation import JobPreparation, TargetStep
from foldcli.pipeline.runs.state import RunSettings, RunState
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.locks import LockOwner, TargetLocks
from tests.foldcli.pipeline.runs.runs import QUERY, UBIQUITIN, Runs, make_intermediate_files

pytestmark = pytest.mark.usefixtures("one_thread")

ALIGNMENT = AlignmentTarget("q", ("-",), f">q\n{UBIQUITIN[:20]}\n".encode())
TAGS = [f"alphafold2_ptm_model_{number}_seed_000" for number in (3, 4)]


@contextmanager
def preparation(
    settings: RunSettings, **inputs: AlignmentTarget
) -> Iterator[tuple[JobPreparation, RunState]]:
    """Prepare targets of alignments, by name, as a run does."""
    targets = [TargetRun(settings.output.files(name), target_input) for name, target_input in inputs.items()]
    state = RunState(targets, settings, Failures(settings.output.folder, Shard()))
    with state.locks:
        yield JobPreparation(state, FeatureStage(settings.features, None, {}, None)), state


def describe(steps: list[TargetStep]) -> list[tuple[str | None, bool, bool]]:
    return [(None if step.job is None else step.job.tag, step.is_first, step.is_last) for step in steps]


def test_steps_are_the_jobs_whose_models_are_missing(tmp_path: Path) -> None:
    runs = Runs(tmp_path)

    def prepare(**changes: Any) -> list[list[tuple[str | None, bool, bool]]]:
        with preparation(runs.settings(**changes), q=ALIGNMENT) as (jobs, state):
            targets = [target for target in state.targets if not jobs.skip_finished(target)]
            return [describe(list(steps)) for _, steps in jobs.prepare(targets, lambda sample: sample)]

    assert prepare(models=(3, 4)) == [[(TAGS[0], True, False), (TAGS[1], False, True)]]
    runs.run(ALIGNMENT)
    assert prepare() == []
    assert prepare(models=(3, 4)) == [[(TAGS[1], True, True)]]
    # the model is kept, and published with another ranking
    assert prepare(rank="ptm") == [[(None, False, True)]]


def test_targets_that_other_runs_have_locked_come_last(tmp_path: Path) -> None:
    inputs = {name: replace(ALIGNMENT, name=name) for name in ("first", "second")}
    settings = Runs(tmp_path).settings()
    with TargetLocks(Event()) as others, preparation(settings, **inputs) as (jobs, state):
        lock = state.targets[0].files.lock_path
        assert others.try_acquire(lock)
        prepared = jobs.prepare(state.targets, lambda sample: sample)
        assert next(prepared)[0].name == "second"
        others.release(lock)
        target, steps = next(prepared)
        assert target.name == "first" and state.locks.is_held(lock)
        assert describe(list(steps)) == [(TAGS[0], True, True)]


def test_target_that_another_run_finishes_meanwhile_is_planned_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with preparation(runs.settings(), q=ALIGNMENT) as (jobs, state):
        (target,) = state.targets
        assert not jobs.skip_finished(target)
        runs.run(ALIGNMENT)
        ((_, steps),) = jobs.prepare(state.targets, lambda sample: sample)
        assert list(steps) == [] and target.status is TargetStatus.PREDICTED
        assert not target.files.lock_path.exists()


def test_failure_of_a_target_leaves_the_others(tmp_path: Path) -> None:
    missing = AlignmentTarget("missing", (str(tmp_path / "missing.a3m"),))
    with preparation(Runs(tmp_path).settings(), missing=missing, q=ALIGNMENT) as (jobs, state):
        steps = [list(steps) for _, steps in jobs.prepare(state.targets, lambda sample: sample)]
        assert list(map(describe, steps)) == [[], [(TAGS[0], True, True)]]
        ((name, error),) = state.failures.failed
        assert name == "missing" and isinstance(error, OSError)
        assert [target.status for target in state.targets] == [TargetStatus.FAILED, TargetStatus.OPEN]
        assert not state.targets[0].files.lock_path.exists()


@pytest.mark.parametrize("name", [".lock", ".lock.0123456789abcdef.tmp", ".work/search/q.a3m"])
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


@pytest.mark.parametrize(
    "damaged",
    [
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
    target = TargetRun(again.files, QUERY, facts=Facts(device="NVIDIA H200", residues=20))
    target.keep_device()
    again.run(models=(3, 4))
    assert again.done()["facts"]["device"] == "NVIDIA H200"
    again.run(models=(3, 4), rank="ptm")
    assert again.done()["facts"]["device"] == "NVIDIA H200", "also if all models are kept"


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path, searcher: LocalSearcher) -> None:
    runs = Runs(tmp_path, searcher)
    folders = (runs.files.folder, runs.files.search_folder, runs.files.staging_folder)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".q.a3m.0123456789abcdef.tmp").touch()
    runs.run()
    assert not list(runs.files.folder.rglob("*.tmp"))
