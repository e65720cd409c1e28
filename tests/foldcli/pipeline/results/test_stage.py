"""Tests of the result stage: models are written, targets finished or failed, and interrupts end it."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import numpy as np
import pytest

from foldcli.families.settings import Job
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.outputs.done import DoneRecord, StageCost
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelOrigin, ModelResult, PredictedModel, relaxed_path, write_model
from foldcli.outputs.target import TargetRun
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.relaxation import RelaxStage, relax_settings
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.targets.plan import TargetPlan
from foldcli.report import ReportSettings
from tests.model.output.random_predictions import prediction_of

JOBS = [Job(ParameterSource(number, f"model_{number}_ptm", None), 0, "") for number in (1, 2)]
PLAN = TargetPlan({}, "key", JOBS, 100.0, (), None, False)
FIRST, SECOND = PLAN.models


@dataclass
class Events:
    """The calls of a result stage."""

    models: list[tuple[str, ModelResult]] = field(default_factory=list)
    finished: list[tuple[str, DoneRecord]] = field(default_factory=list)
    failed: list[tuple[str, BaseException]] = field(default_factory=list)

    def stage(self, workers: int = 1, relaxation: RelaxStage | None = None) -> ResultStage:
        return ResultStage(
            WorkerPool(workers), workers, "plddt", ReportSettings(False, False), False, relaxation,
            on_model=lambda target, result: self.models.append((target.name, result)),
            on_finished=lambda target, record: self.finished.append((target.name, record)),
            on_failed=lambda target, error: self.failed.append((target.name, error)),
        )  # fmt: skip


def target_of(folder: Path, name: str = "q") -> TargetRun:
    facts = Facts(residues=4, alignment_rows=1)
    return TargetRun(TargetFiles(name, folder), AlignmentTarget(name, (f"{name}.a3m",)), facts=facts)


def model_of(target: TargetRun, tag: str, plddt: float) -> PredictedModel:
    prediction = replace(prediction_of([0, 1, 2, 3]), plddt=np.full(4, plddt))
    origin = ModelOrigin(target.name, "a network", is_untrained=False)
    return PredictedModel(target.files.staging_folder, tag, PLAN.models[tag], prediction, origin, 1.5)


def test_target_is_finished_once_all_its_models_are_written(tmp_path: Path) -> None:
    events, target = Events(), target_of(tmp_path)
    target.costs.append(StageCost("features", 1.0, 1))
    target.warnings.append("a warning")
    with events.stage(workers=2) as stage:
        stage.add_model(target, model_of(target, FIRST, 40.0))
        stage.add_model(target, model_of(target, SECOND, 60.0))
        stage.finish(target, PLAN)
    assert {(name, result.tag) for name, result in events.models} == {("q", FIRST), ("q", SECOND)}
    ((name, record),) = events.finished
    assert name == "q" and events.failed == []
    assert [(result.tag, result.plddt) for result in record.ranking] == [(SECOND, 60.0), (FIRST, 40.0)]
    assert (record.warnings, record.facts) == (["a warning"], target.facts)
    assert [cost.stage for cost in record.costs] == ["features", "report"]
    assert not target.files.work_folder.exists() and target.files.path("done").is_file()
    assert target.files.model_path("pdb", 1, SECOND).is_file()
    assert target.files.model_path("pdb", 2, FIRST).is_file()


def test_target_fails_once_whichever_of_its_models_cannot_be_written(tmp_path: Path) -> None:
    events, bad, good = Events(), target_of(tmp_path, "bad"), target_of(tmp_path, "good")
    with events.stage() as stage:
        for target in (bad, good):
            for tag in (FIRST, SECOND):
                model = model_of(target, tag, 50.0)
                if target is bad:
                    model.prediction.positions[0] = np.nan
                stage.add_model(target, model)
            stage.finish(target, PLAN)
    ((name, error),) = events.failed
    assert name == "bad" and isinstance(error, ValueError) and "finite" in str(error)
    assert [name for name, _ in events.finished] == ["good"] and len(events.models) == 2
    assert not bad.files.path("done").exists()


def test_target_whose_model_was_never_written_fails(tmp_path: Path) -> None:
    events, target = Events(), target_of(tmp_path)
    with events.stage() as stage:
        stage.add_model(target, model_of(target, FIRST, 40.0))
        stage.finish(target, PLAN)
    ((_, error),) = events.failed
    assert isinstance(error, FileNotFoundError) and f"the files of {SECOND} are gone" in str(error)
    assert events.finished == []


def test_models_that_are_relaxed_already_are_not_relaxed_again(tmp_path: Path) -> None:
    pytest.importorskip("openmm")
    events, target = Events(), target_of(tmp_path)
    relaxed = relaxed_path(target.files.staging_folder, SECOND)
    relaxed.parent.mkdir(parents=True)
    relaxed.write_text("relaxed before\n")
    with events.stage(relaxation=RelaxStage(1, WorkerPool(1), relax_settings())) as stage:
        # the second one is the best
        for tag, plddt in ((FIRST, 40.0), (SECOND, 60.0)):
            stage.add_model(target, model_of(target, tag, plddt))
        stage.finish(target, PLAN)
    assert len(events.finished) == 1 and target.relax_failures == []
    assert "relax" not in [cost.stage for cost in target.costs]
    assert target.files.model_path("relaxed_pdb", 1, SECOND).read_text() == "relaxed before\n"


class SlowFuture(Future[Any]):
    """A future that is done, whose callers lose the processor after its callbacks."""

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call the function, and let other threads run."""
        super().add_done_callback(fn)
        time.sleep(0.1)


class CallingPool(WorkerPool):
    """A pool that calls functions at once, and tells when it is closed."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__(1)
        self.call, self.closed = call, Event()

    def submit(self, function: Any, item: Any) -> "Future[Any]":
        """Return a future that is done, or the one that the call returns."""
        result = self.call(item)
        if isinstance(result, Future):
            return result
        future = SlowFuture()
        future.set_result(result)
        return future

    def close(self) -> None:
        """Note the end."""
        self.closed.set()


def test_stage_waits_while_relaxations_that_are_done_at_once_are_queued(tmp_path: Path) -> None:
    target, written, is_closed = target_of(tmp_path), {FIRST: Future(), SECOND: Future()}, []  # type: ignore[var-annotated]

    def write(item: Any) -> Any:
        return written[item.tag] if isinstance(item, PredictedModel) else None

    def relax(task: Any) -> StageCost:
        is_closed.append(pool.closed.is_set())
        return StageCost("relax", 1.0, 1)

    pool, relax_pool, events = CallingPool(write), CallingPool(relax), Events()
    stage = replace(events.stage(), pool=pool, relaxation=RelaxStage(2, relax_pool, None))  # type: ignore[arg-type]
    for tag in written:
        stage.add_model(target, model_of(target, tag, 50.0))
    stage.finish(target, PLAN)
    end = Thread(target=stage.__exit__, args=(None, None, None))
    end.start()
    for future, model in zip(written.values(), [model_of(target, tag, 50.0) for tag in written], strict=True):
        future.set_result(write_model(model))
    end.join(30)
    assert is_closed == [False, False] and pool.closed.is_set()
    assert [name for name, _ in events.finished] == ["q"]


class FailingModel:
    """A model that ends the worker that is to write it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


@pytest.mark.parametrize("stopped", [False, True])
def test_worker_that_ends_is_a_failure_unless_the_run_ends(stopped: bool, tmp_path: Path) -> None:
    events, target = Events(), target_of(tmp_path)
    with events.stage() as stage:
        if stopped:
            stage.stop()
        stage.add_model(target, FailingModel())  # type: ignore[arg-type]
        stage.finish(target, PLAN)
    assert [isinstance(error, ChildProcessError) for _, error in events.failed] == [True] * (not stopped)
    assert events.finished == []


class WaitingModel:
    """A model that its worker cannot read before a pipe ends."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe

    def __reduce__(self) -> Any:
        return Path.read_bytes, (self.pipe,)


def test_predictions_wait_while_too_many_models_are_unwritten(tmp_path: Path) -> None:
    events, target, pipe = Events(), target_of(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    with events.stage() as stage:
        stage.add_model(target, WaitingModel(pipe))  # type: ignore[arg-type]
        stage.add_model(target, model_of(target, FIRST, 40.0))
        last = target, model_of(target, SECOND, 60.0)
        third = Thread(target=stage.add_model, args=last, daemon=True)
        third.start()
        third.join(0.3)
        waited = third.is_alive()
        # opening it waits for the worker
        with pipe.open("wb"):
            pass
        third.join(30)
        assert waited and not third.is_alive()
    assert [result.tag for _, result in events.models] == [FIRST, SECOND]


class InterruptedModel:
    """A model that is being pickled when the user presses Ctrl-C."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_interrupt_while_a_model_is_queued_ends_the_stage(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Events().stage() as stage:
        stage.add_model(target_of(tmp_path), InterruptedModel())  # type: ignore[arg-type]


def test_second_interrupt_ends_the_writing(tmp_path: Path) -> None:
    events, target, pipe = Events(), target_of(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    # RDKit, which other tests call, leaves a handler of its own
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), events.stage() as stage:
        stage.add_model(target, WaitingModel(pipe))  # type: ignore[arg-type]
        writer = os.open(pipe, os.O_WRONLY)
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert events == Events()
