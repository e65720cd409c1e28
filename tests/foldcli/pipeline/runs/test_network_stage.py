"""Tests of the network stage: --stop-at-score skips the remaining jobs of a target, and jobs that fail."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.errors import SomeTargetsFailed
from foldcli.families.settings import Job
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.model_files import restage_model
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.network.job_runners import JobResult
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.runs.dry_run import DONE, TO_DO
from foldcli.pipeline.runs.network_stage import NetworkStage
from foldcli.pipeline.runs.preparation import JobPreparation
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunState
from foldcli.progress import Progress
from foldcli.report import ReportSettings
from model.errors import OutOfMemory
from tests.foldcli.pipeline.network.tiny_worker import TinyPredictor
from tests.foldcli.pipeline.runs.runs import UBIQUITIN, Runs

QUERY = AlignmentTarget("q", ("-",), f">q\n{UBIQUITIN[:20]}\n".encode())
MODELS = (3, 4, 5)
FIRST = "alphafold2_ptm_model_3_seed_000"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Finish a target whose first model has a sufficient score; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("stopped"))
    runs.run(QUERY, models=MODELS, num_seeds=2, stop_at_score=0.0)
    return runs


def test_target_is_finished_when_a_model_has_a_higher_score(stopped: Runs) -> None:
    assert stopped.tags() == [FIRST]
    plddt = stopped.done()["ranking"][0]["plddt"]
    for score, action in ((0.0, DONE), (plddt - 0.01, DONE), (plddt, TO_DO), (100.0, TO_DO)):
        assert stopped.action(QUERY, models=MODELS, stop_at_score=score) == action
    # the models before the first that suffices are needed, those after it are not
    assert stopped.action(QUERY, models=(4, 3), stop_at_score=0.0) == TO_DO
    assert stopped.action(QUERY, models=(3, 4), stop_at_score=0.0) == DONE


def test_interrupted_run_ends_with_the_same_models(stopped: Runs, tmp_path: Path) -> None:
    resumed = Runs(tmp_path)
    record = FinishedTarget.read(stopped.files.path("done"))
    assert record is not None
    restage_model(stopped.files, 1, record.ranking[0])
    resumed.files.folder.mkdir(parents=True)
    stopped.files.work_folder.rename(resumed.files.work_folder)
    resumed.run(QUERY, models=MODELS, num_seeds=2, stop_at_score=0.0)
    assert resumed.tags() == [FIRST]
    assert resumed.contents() == stopped.contents()
    # the model was not predicted again
    assert resumed.done()["ranking"] == stopped.done()["ranking"]


def test_failed_job_fails_its_target_only(tmp_path: Path) -> None:
    # errors when a job is started, and when its result is collected
    names = ("bad", "late", "good")
    settings = Runs(tmp_path).settings(models=(3, 4))
    predictor = settings.predictor
    tiny = TinyPredictor(predictor.sources, predictor.settings, predictor.memory)
    failures = Failures(settings.output.folder, Shard())
    with pytest.raises(SomeTargetsFailed):
        run_targets([(name, QUERY) for name in names], replace(settings, predictor=tiny), failures)
    reasons = {name: str(error) for name, error in failures.failed}
    assert reasons == {"bad": "for this target", "late": "when the result was collected"}
    finished = [settings.output.files(name).path("done").exists() for name in names]
    assert finished == [False, False, True] and not list(tmp_path.rglob(".lock"))


def _results() -> ResultStage:
    """Return a result stage that no model and no target may reach."""
    unexpected = pytest.fail
    pool, report = WorkerPool(1), ReportSettings(False, False)
    return ResultStage(pool, 1, "auto", report, False, None, unexpected, unexpected, unexpected)


class ShortOfMemory:
    """A worker that notices when a result is collected that a target does not fit."""

    usable, postpones, detail = True, True, ""

    def start(self, name: str, job: Job, sample: object, progress: Progress) -> Callable[[], JobResult]:
        """Return a function that raises OutOfMemory."""

        def collect() -> JobResult:
            raise OutOfMemory("not enough memory")

        return collect


def test_target_without_memory_for_its_last_job_is_postponed(tmp_path: Path) -> None:
    settings = Runs(tmp_path).settings()
    target = TargetRun(settings.output.files("q"), QUERY)
    state = RunState([target], settings, Failures(settings.output.folder, Shard()))
    with state.locks, _results() as results:
        preparation = JobPreparation(state, FeatureStage(settings.features, None, {}, None))
        ((_, steps),) = preparation.prepare([target], lambda sample: sample)
        NetworkStage(state, results, ShortOfMemory()).run(steps)
        assert target.status is TargetStatus.POSTPONED
        assert not state.failures.failed and not target.files.lock_path.exists()
