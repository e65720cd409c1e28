"""The network stage: run the prepared jobs of targets, and hand the models to the result stage."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from foldcli.families.registry import family_of
from foldcli.families.settings import Job
from foldcli.logs import logger
from foldcli.outputs.model_files import PredictedModel
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.network.device_workers import JobInterrupted
from foldcli.pipeline.network.job_runners import JobResult, JobRunner
from foldcli.pipeline.processes.background import CallQueue
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.runs.preparation import TargetStep
from foldcli.pipeline.runs.state import RunState
from foldcli.pipeline.targets.layouts import layout_of
from foldcli.pipeline.targets.plan import TargetPlan
from foldcli.progress import Progress
from model.errors import OutOfMemory

# jobs whose results are collected while the next one is started
_JOBS_AHEAD = 2


class NetworkStage:
    """Runs jobs one after the other; with several devices, each has its own stage and thread."""

    def __init__(self, state: RunState, results: ResultStage, runner: JobRunner) -> None:
        self._state, self._results, self._runner = state, results, runner
        self._settings = state.settings

    def run(self, work: Iterable[TargetStep]) -> None:
        """Start all jobs; a thread collects results, as the GPU finishes a job during the next start."""
        # workers that end because of the same signal are no failures
        with CallQueue(_JOBS_AHEAD, on_error=self._results.stop) as collector:
            start = time.perf_counter()
            for step in work:
                target = step.target
                if not target.is_open:
                    continue
                waited = (target.facts.waited_for_features_seconds or 0.0) + time.perf_counter() - start
                target.facts.waited_for_features_seconds = round(waited, 3)
                plan, is_last = self._start_step(step, collector)
                if is_last and target.is_open:
                    target.set_status(TargetStatus.PREDICTED)
                    collector.submit(partial(self._finish, target, plan))
                del step  # its sample is freed before the next one is made
                if not self._runner.usable or (
                    target.status is TargetStatus.INTERRUPTED and self._state.stop.is_set()
                ):
                    return
                start = time.perf_counter()

    def _start_step(self, step: TargetStep, collector: CallQueue) -> tuple[TargetPlan, bool]:
        """Start the job of a step, if it has one; return the target's plan, and whether no step follows."""
        target, plan = step.target, step.plan
        if step.job is None:
            return plan, step.is_last
        try:
            passes = self._announce(step, step.job)
            collect = self._runner.start(target.name, step.job, step.sample, passes)
        except Exception as error:
            self._fail_job(target, error)
            return plan, step.is_last
        added = collector.submit(partial(self._add_model, target, step.job, plan, collect))
        if plan.may_stop and added.result() > plan.stop_at_score:
            return self._stop(target, plan, step.job), True
        return plan, step.is_last

    def _announce(self, step: TargetStep, job: Job) -> Progress:
        """Log and show a job that is started; return the callback that counts its passes."""
        target, family, residues = step.target, family_of(job.source), step.target.facts.residues
        if step.is_first:
            position, count = self._state.positions[target.name], len(self._state.targets)
            layout_of(self._settings.output.layout).log_query(target.name, position, count, residues)
        logger.debug("%s: %s", target.name, family.stage)
        size = f"{residues} {family.size_unit}"
        return self._state.progress.begin_job(target.name, size, job.tag, self._runner.detail)

    def _add_model(
        self, target: TargetRun, job: Job, plan: TargetPlan, collect: Callable[[], JobResult]
    ) -> float:
        """Wait for the models of a job, and queue the writing of their files; return the best pLDDT, or 0."""
        try:
            result = collect()
            target.add_cost(result.cost)
            target.facts.add_device(result.facts)
            target.keep_device()
            fingerprints, writer = job.fingerprints(plan.fingerprint), family_of(job.source).writer
            folder, seconds = target.files.staging_folder, result.cost.seconds / len(result.models)
            note = target.facts.network_note
            used = target.used_templates if family_of(job.source).uses_templates(job.source) else ()
            for model in result.models:
                origin = replace(model.origin, note=note, templates=model.origin.templates or used)
                key = fingerprints[model.tag]
                self._results.add_model(
                    target,
                    PredictedModel(folder, model.tag, key, model.prediction, origin, seconds, writer),
                )
        except Exception as error:
            self._fail_job(target, error)
            return 0.0
        return max(model.prediction.mean_plddt for model in result.models)

    def _fail_job(self, target: TargetRun, error: Exception) -> None:
        """Handle the error of a job."""
        if self._state.stop.is_set():
            # the run that continues repeats the job
            target.set_status(TargetStatus.INTERRUPTED)
        elif isinstance(error, JobInterrupted):
            logger.info("%s: %s; it is predicted again", target.name, error)
            target.set_status(TargetStatus.INTERRUPTED)
        elif isinstance(error, OutOfMemory) and self._runner.postpones:
            self._postpone(target, error)
        else:
            self._state.fail(target, error)

    def _postpone(self, target: TargetRun, error: OutOfMemory) -> None:
        """Leave a target that does not fit one device until all of them are free."""
        target.set_status(TargetStatus.POSTPONED)
        count = self._settings.devices_per_target
        devices = "one device" if count == 1 else f"{count} devices"
        self._state.locks.release(target.files.lock_path)
        logger.info(
            "%s: does not fit %s (%s), so all predict it together at the end", target.name, devices, error
        )

    def _stop(self, target: TargetRun, plan: TargetPlan, job: Job) -> TargetPlan:
        """Return a target's plan without the jobs after the one that reached --stop-at-score."""
        shorter = plan.stop_after(job)
        if skipped := sum(len(job.tags) for job in plan.jobs[len(shorter.jobs) :]):
            text = f"{skipped} more model{'s' if skipped > 1 else ''}"
            logger.info(
                "%s: pLDDT is above %g (--stop-at-score), %s not run", target.name, plan.stop_at_score, text
            )
        return shorter

    def _finish(self, target: TargetRun, plan: TargetPlan) -> None:
        if target.status is not TargetStatus.PREDICTED:
            return
        if self._state.locks.is_held(target.files.lock_path):
            try:
                self._results.finish(target, plan)
            except Exception as error:
                self._state.fail(target, error)
        else:
            # this process was suspended, so that its lock looked stale to another run
            logger.warning("%s: another run has taken it over", target.name)
            target.set_status(TargetStatus.FAILED)
            self._state.progress.target_done(target.name)
