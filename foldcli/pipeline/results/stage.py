"""The result stage: worker processes write models, and publish targets whose models are all written.

Formatting structures, drawing plots and building pages take longer than a short protein's prediction, and
hold the interpreter's lock. In separate processes they do not delay the network.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import BoundedSemaphore, Condition, Lock
from typing import Any, TypeVar

from foldcli.errors import ends_run
from foldcli.outputs.done import DoneRecord, StageCost
from foldcli.outputs.model_files import (
    ModelResult,
    PredictedModel,
    relaxed_path,
    write_model,
)
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.publishing import FinishTask, finish_target
from foldcli.pipeline.results.relaxation import RelaxStage, RelaxTask, relax_model
from foldcli.pipeline.targets.plan import TargetPlan
from foldcli.report import ReportSettings

T = TypeVar("T")

# largest number of predicted and unwritten models per worker; their arrays are in memory
_MODELS_PER_WORKER = 2


@dataclass
class _TargetProgress:
    """The models of one target that are being written.

    Args:
        task: finishes the target once `num_unwritten` is 0; None while more models may come.
        failed: whether a model could not be written.
    """

    num_unwritten: int = 0
    task: FinishTask | None = None
    failed: bool = False


@dataclass
class ResultStage:
    """Writes the models of targets, and finishes targets, in worker processes.

    Args:
        report: pages and plots to make.
        archive: whether to write NAME.result.zip.
        relaxation: relaxes the best models before their target is finished; None if none are to be relaxed.
        on_model: called with each target and its written model.
        on_finished: called with each finished target and its record.
        on_failed: called with each target that could not be written, and the error.
    """

    pool: WorkerPool
    num_workers: int
    rank_by: str
    report: ReportSettings
    archive: bool
    relaxation: RelaxStage | None
    on_model: Callable[[TargetRun, ModelResult], None]
    on_finished: Callable[[TargetRun, DoneRecord], None]
    on_failed: Callable[[TargetRun, BaseException], None]
    _targets: dict[str, _TargetProgress] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _running: "set[Future[Any]]" = field(default_factory=set)
    _stopped: bool = False
    _abandoned: bool = False

    def __post_init__(self) -> None:
        self._idle = Condition()
        self._free_slots = BoundedSemaphore(self.num_workers * _MODELS_PER_WORKER)

    def __enter__(self) -> "ResultStage":
        return self

    def __exit__(self, *exception: object) -> None:
        """Wait until all models are written and all complete targets are finished, and end the workers.

        An error or interrupt ends relaxations at once, and a second interrupt also the writing of models; a
        later run repeats what is missing.
        """
        if exception[0] is not None:
            self.stop()
            if self.relaxation is not None:
                self.relaxation.pool.terminate()
        try:
            with self._idle:
                self._idle.wait_for(lambda: not self._running)
        except BaseException:
            # nothing may be written once the locks are released
            self._abandoned = True
            self.pool.terminate()
            raise
        self.pool.close()
        if self.relaxation is not None:
            self.relaxation.pool.close()

    def stop(self) -> None:
        """Note that the run ends early: workers that end now, because of the same signal, are no failures."""
        self._stopped = True

    def _follow(self, future: "Future[T]", on_done: "Callable[[Future[T]], None]") -> None:
        """Call `on_done` with the future of a worker's call once it is done."""

        def finished(future: Future[T]) -> None:
            try:
                if not self._abandoned:
                    on_done(future)
            finally:
                self._forget(future)

        try:
            # before the callback, which a future that is done calls at once
            with self._idle:
                self._running.add(future)
            future.add_done_callback(finished)
        except BaseException:
            # after an interrupt there may be no callback to wait for
            self._forget(future)
            raise

    def _forget(self, future: "Future[Any]") -> None:
        with self._idle:
            self._running.discard(future)
            self._idle.notify_all()

    def add_model(self, target: TargetRun, model: PredictedModel) -> None:
        """Queue the writing of a model; wait first while too many models are unwritten."""
        self._free_slots.acquire()
        with self._lock:
            self._targets.setdefault(target.name, _TargetProgress()).num_unwritten += 1
        self._follow(self.pool.submit(write_model, model), partial(self._on_model_written, target))

    def finish(self, target: TargetRun, plan: TargetPlan) -> None:
        """Finish a target once its models, all of which have been added, are written."""
        task = FinishTask(
            files=target.files,
            fingerprint=plan.fingerprint,
            settings=plan.identity,
            rank_by=self.rank_by,
            models=plan.models,
            costs=target.costs,
            warnings=target.warnings,
            facts=target.facts,
            report=self.report,
            archive=self.archive,
        )
        with self._lock:
            self._targets.setdefault(target.name, _TargetProgress()).task = task
        self._relax_or_finish(target)

    def _on_model_written(self, target: TargetRun, future: "Future[ModelResult]") -> None:
        self._free_slots.release()
        error = future.exception()
        with self._lock:
            progress = self._targets[target.name]
            progress.num_unwritten -= 1
            first_error = error is not None and not progress.failed
            progress.failed |= error is not None
        if error is None:
            self.on_model(target, future.result())
        elif first_error:
            self._fail(target, error)
        self._relax_or_finish(target)

    def _fail(self, target: TargetRun, error: BaseException) -> None:
        """Report a failure in a worker; see `stop`."""
        if not (self._stopped and isinstance(error, ChildProcessError)):
            self.on_failed(target, error)

    def _relax_or_finish(self, target: TargetRun) -> None:
        """Relax the best models if requested, and finish a target, once all of its models are written."""
        with self._lock:
            progress = self._targets.get(target.name)
            if progress is None or progress.num_unwritten or progress.task is None:
                return
            del self._targets[target.name]
        if progress.failed:
            return
        task, stage, on_finished = progress.task, self.relaxation, partial(self._on_target_finished, target)
        try:
            best = [] if stage is None else task.rank()[: stage.limit]
        except Exception as error:
            self.on_failed(target, error)
            return
        folder = task.files.staging_folder
        pending = {result.tag for result in best if not relaxed_path(folder, result.tag).is_file()}
        if stage is None or not pending:
            self._follow(self.pool.submit(finish_target, task), on_finished)
        else:
            self._relax(target, task, stage, [result for result in best if result.tag in pending])

    def _relax(
        self, target: TargetRun, task: FinishTask, stage: RelaxStage, results: list[ModelResult]
    ) -> None:
        """Relax models, then finish their target."""
        pending = {result.tag for result in results}
        on_finished = partial(self._on_target_finished, target)

        def on_relaxed(tag: str, future: "Future[StageCost]") -> None:
            if self._stopped:
                return
            with self._lock:
                pending.remove(tag)
                is_last = not pending
                if (error := future.exception()) is None:
                    target.add_cost(future.result())
                elif not ends_run(error):
                    target.add_relax_failure(tag, error)
            if error is not None and ends_run(error):
                self._fail(target, error)
            elif is_last and target.status is not TargetStatus.FAILED:
                self._follow(self.pool.submit(finish_target, task), on_finished)

        for result in results:
            relax_task = RelaxTask(target.name, task.files.staging_folder, result, stage.settings)
            self._follow(stage.pool.submit(relax_model, relax_task), partial(on_relaxed, result.tag))

    def _on_target_finished(self, target: TargetRun, future: "Future[DoneRecord]") -> None:
        if (error := future.exception()) is not None:
            self._fail(target, error)
        else:
            self.on_finished(target, future.result())
