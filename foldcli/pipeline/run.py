"""The flow of targets through `foldcli fold` and `foldcli predict`.

A run is a list of targets that pass through stages, each working on the whole list, a bounded number of
targets ahead of the next stage:

1. search (`fold` only), in batches, in a thread           `search_stage.search_ahead`,
   chains of complexes before that                          `chain_search.search_chains_ahead`
2. features, templates and random features, in a thread    `feature_stage.FeatureStage`
3. the network, or a copy of a template, in the main thread `_Run._predict`,
   or with several devices in a process for each,
   which together predict what does not fit one            `device_workers.DeviceWorker`
4. files, ranking, report and done.json, in processes      `results.ResultStage`

The network is what a run waits for. The state of a target is on the disk: staged files in its work folder,
each with the fingerprint of what it depends on, so that an interrupted run continues. done.json, written
last, marks a finished target. A run holds a target's lock while a stage works on it.
"""

import contextlib
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias

import click
import numpy as np

from features.complexes.pairing import DEFAULT_PAIRING
from features.entry import read_entry_metadata
from features.residues import check_foldable
from foldcli.errors import NotRelaxed
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.complexes import Complex
from foldcli.inputs.targets import TargetInput
from foldcli.logs import log_time_since_start, logger
from foldcli.options.common import available_cores
from foldcli.outputs import colabfold_layout
from foldcli.outputs.done import DoneRecord
from foldcli.outputs.model_files import ModelResult, PredictedModel
from foldcli.outputs.summary import RunSummary
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.alignment_stores import CacheStore, TargetStore
from foldcli.pipeline.background import CallQueue, run_ahead
from foldcli.pipeline.chain_search import ChainStore, search_chains_ahead
from foldcli.pipeline.device_workers import (
    DeviceWorker,
    JobResult,
    JobRunner,
    LocalRunner,
    WorkerSettings,
)
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.feature_stage import FeatureStage
from foldcli.pipeline.identity import Job, TargetIdentities
from foldcli.pipeline.locks import TargetLocks
from foldcli.pipeline.predictor import Predictor, Sampling
from foldcli.pipeline.relaxation import RelaxStage
from foldcli.pipeline.results import ResultStage, has_leftovers, load_libraries, remove_leftovers
from foldcli.pipeline.sampling_process import SamplingProcess
from foldcli.pipeline.search_stage import SearchStage, search_ahead
from foldcli.pipeline.settings import FeatureSettings, OutputSettings
from foldcli.pipeline.shared_arrays import share_arrays
from foldcli.pipeline.target_plan import TargetPlan, plan_target
from foldcli.pipeline.target_queue import SharedTargets, share_targets
from foldcli.pipeline.target_run import TargetRun
from foldcli.pipeline.template_copies import TemplateCopier
from foldcli.pipeline.template_stage import TargetTemplates, TemplateStage
from foldcli.pipeline.worker_pool import WorkerPool
from foldcli.progress import RunProgress
from foldcli.report.make import try_index
from model.errors import OutOfMemory
from msa.errors import InputError, MissingError
from msa.gpu.process_state import short_switch_interval
from msa.io.fasta import FastaRecord

# sampled jobs that wait for the network
_SAMPLES_AHEAD = 2
# jobs whose results are collected while the next one is started
_JOBS_AHEAD = 2
# searched targets that wait for their features
_SEARCHES_AHEAD = 256
_MAX_WORKERS = 6

# `Predictor.sample` or `TemplateCopier.sample`
Sample: TypeAlias = Callable[[dict[str, np.ndarray], TargetTemplates | None, Any], Any]


@dataclass(frozen=True)
class RunSettings:
    """The settings and stages of a run.

    Args:
        output: settings of the results.
        features: the feature cache.
        predictor: the networks, or the copying of templates.
        identities: identities of the targets.
        search: the search of queries; None if there are no queries.
        templates: the template stage; None to use no templates.
        database: description of the database of `search`, for the opening line.
        workers: settings of a worker for each of several devices; if empty, `predictor` runs the jobs.
        devices_per_target: number of these devices that predict a target together.
    """

    output: OutputSettings
    features: FeatureSettings
    predictor: Predictor | TemplateCopier
    identities: TargetIdentities
    search: SearchStage | None = None
    templates: TemplateStage | None = None
    database: str | None = None
    workers: tuple[WorkerSettings, ...] = ()
    devices_per_target: int = 1

    def device_groups(self) -> list[tuple[WorkerSettings, ...]]:
        """Return the devices that predict targets together; a rest of devices is not used."""
        size = self.devices_per_target
        starts = range(0, len(self.workers) - size + 1, size)
        return [self.workers[start : start + size] for start in starts]

    def opening_line(self, num_targets: int) -> str:
        """Return a description of the run: targets, networks, device and database."""
        predictor, identities = self.predictor, self.identities
        labels = [source.label for source in predictor.sources]
        # the part that all labels share is written once
        networks = " and ".join(
            ", ".join([own[0], *(label.rpartition("_")[2] for label in own[1:])])
            for own in ([label for label in labels if label.rpartition("_")[0] == start]
                        for start in dict.fromkeys(label.rpartition("_")[0] for label in labels))
        )  # fmt: skip
        seeds, at_a_time = identities.settings.num_seeds, min(len(self.device_groups()), num_targets)
        parts = [
            f"{num_targets} target{'s' if num_targets > 1 else ''}",
            networks + (f" with {seeds} seeds" if seeds > 1 else ""),
            predictor.describe(),
            *([f"{at_a_time} targets at a time"] if at_a_time > 1 else []),
            *([] if self.database is None else [f"database {self.database}"]),
            *(["with templates"] if self.uses_templates(identities.all_jobs()) else []),
        ]
        return "; ".join(parts)

    def uses_templates(self, jobs: Sequence[Job]) -> bool:
        """Return True if templates are searched, and the network of one of the jobs takes them."""
        return self.templates is not None and any(map(self.predictor.uses_templates, jobs))


@dataclass(frozen=True)
class _Work:
    """The next work on a target: predict one job, or only publish its models.

    Args:
        target: the target.
        plan: its plan.
        job: the job to predict; None if the models of an earlier run only need to be published.
        sample: what the predictor needs for the job; see `Predictor.sample` and `TemplateCopier.sample`.
        is_first: whether no other job of the target came before.
        is_last: whether no other job of the target follows.
    """

    target: TargetRun
    plan: TargetPlan
    job: Job | None
    sample: Any
    is_first: bool
    is_last: bool


def run_targets(
    named: Sequence[tuple[str, TargetInput]], settings: RunSettings, failures: Failures, as_json: bool = False
) -> None:
    """Run all targets through the stages, then log the summary, and write summary.tsv and the index page.

    Args:
        named: names and inputs of this shard's targets.
        settings: settings and stages of the run.
        failures: gets the targets that fail.
        as_json: print the models of all finished targets on stdout.

    Raises:
        SomeTargetsFailed, TargetFailed: see `Failures.finish`.
    """
    output, predictor = settings.output, settings.predictor
    failures.expect(len(named))
    if output.layout == "colabfold":
        colabfold_layout.begin_run(
            output, predictor.settings, predictor.sources, len(named), settings.templates is not None,
            DEFAULT_PAIRING if settings.search is None else settings.search.settings.pairing,
        )  # fmt: skip
    log_time_since_start("the run begins")
    logger.info("%s", settings.opening_line(len(named)))
    summary = RunSummary(output.folder, output.layout, output.shard, [name for name, _ in named])
    # the longest first: memory that was allocated for one target suffices for the next
    ordered = sorted(named, key=lambda pair: -residues_hint(pair[1]))
    targets = [TargetRun(output.files(name), target_input) for name, target_input in ordered]
    try:
        numbers = {name: number for number, (name, _) in enumerate(named)}
        _Run(targets, settings, failures, numbers).execute()
    finally:
        failed = [name for name, error in failures.failed if not isinstance(error, NotRelaxed)]
        summary.write(failed)
    if as_json:
        for model in summary.models(failed):
            click.echo(json.dumps(model))
    summary.log(failed, failures.path)
    try:
        failures.finish()
    finally:
        try_index(output.folder, output.report)


def warm_up_early(
    predictor: Predictor | TemplateCopier, named: Sequence[tuple[str, TargetInput]], output: OutputSettings
) -> None:
    """Begin to prepare the GPU before the run, if a target has no results.

    Args:
        predictor: the predictor of the run.
        named: names and inputs of the targets.
        output: settings of the results.
    """
    if not all(output.files(name).path("done").exists() for name, _ in named):
        predictor.warm_up(predictor.sources[0])


def residues_hint(target_input: TargetInput) -> int:
    """Return an estimate of a target's residues, for the order of the run; 0 if there is none."""
    if isinstance(target_input, FastaRecord | Complex):
        return len(target_input.sequence)
    try:
        if isinstance(target_input, CachedTarget):
            return int(read_entry_metadata(target_input.path)["tensors"]["msa"][1][1])
        # the order of sizes is about that of lengths, and needs no reading
        return len(target_input.content or b"") or Path(target_input.files[0]).stat().st_size
    except (OSError, ValueError, LookupError):
        return 0


def _complex_of(target: TargetRun) -> Complex | None:
    return target.input if isinstance(target.input, Complex) else None


def _most_passes(settings: RunSettings) -> int:
    """Return the passes of a target, or the most if targets have different networks."""
    passes = {False: 0, True: 0}
    for job in settings.identities.all_jobs():
        is_multimer = job.source.is_multimer
        passes[is_multimer] += settings.predictor.settings.for_network(is_multimer).num_passes
    return max(passes.values())


class _Run:
    """One run; see `run_targets`.

    Args:
        targets: in the order in which they run.
        settings: see `run_targets`.
        failures: see `run_targets`.
        numbers: index of each target among those that the user gave, by name.
    """

    def __init__(
        self, targets: list[TargetRun], settings: RunSettings, failures: Failures, numbers: dict[str, int]
    ) -> None:
        self.targets, self.settings, self.failures = targets, settings, failures
        self.positions = {target.name: position for position, target in enumerate(targets, 1)}
        self.stop = Event()
        self.locks = TargetLocks(self.stop)
        self.num_workers = max(1, min(_MAX_WORKERS, available_cores() // 2, len(targets)))
        self.pool = WorkerPool(self.num_workers, partial(load_libraries, settings.output.report))
        self.progress = RunProgress(len(targets), _most_passes(settings))
        self.chains: ChainStore | None = None
        self.alignments: TargetStore | None = None
        if settings.search is not None:
            request, by_name = settings.search.request, {target.name: target for target in targets}
            self.chains = ChainStore(CacheStore(settings.features.cache, request))
            self.alignments = TargetStore(by_name, request, settings.output.overwrite)
        self.features = FeatureStage(
            settings.features, settings.templates, numbers, self.alignments, self.chains
        )

    def execute(self) -> None:
        """Run all targets; an interrupt ends the run once the predicted models are written."""
        with self.locks, self.progress:
            try:
                if self.settings.workers:
                    self._execute_in_workers()
                else:
                    self._execute_here()
            finally:
                self.stop.set()
                # they may have been started for targets that failed
                self.pool.terminate()

    def _execute_here(self) -> None:
        """Predict with the predictor of this process."""
        work = self._prepared(self._searched(), self.settings.predictor.sample)
        # without work, such as when all targets are finished, no worker is started
        if (first := next(work, None)) is not None:
            log_time_since_start("the first features are ready")
            runner = LocalRunner(self.settings.predictor)
            with self._start_results() as results, self._gpu_launches():
                self._predict_all(chain([first], work), results, runner)
                log_time_since_start("the last prediction is made")
            if not runner.usable:
                raise MissingError(
                    "the GPU cannot be used by this process any more",
                    "See the messages above; run the same command again to continue.",
                )

    def _gpu_launches(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which this thread soon gets the interpreter's lock to launch GPU kernels."""
        on_gpu = self.settings.predictor.memory.device != "cpu"
        return short_switch_interval() if on_gpu else contextlib.nullcontext()

    def _execute_in_workers(self) -> None:
        """Predict in worker processes; targets that do not fit their devices in all processes at the end."""
        targets = self._searched()
        if (first := next(targets, None)) is None:
            return
        predictor = self.settings.predictor
        assert isinstance(predictor, Predictor)
        settings, prepare = self.settings.workers, predictor.wait_for_kernels
        with self._start_results() as results:
            run = partial(self._run_worker, results)
            groups = self.settings.device_groups()[: len(self.targets)]
            workers = [DeviceWorker(group, prepare, postpones=True) for group in groups]
            share_targets(workers, SharedTargets(chain([first], targets)), run, self.stop)
            if postponed := [target for target in self.targets if target.postponed]:
                for target in postponed:
                    target.postponed = False
                together = DeviceWorker(settings, prepare)
                share_targets([together], SharedTargets(iter(postponed)), run, self.stop)

    def _run_worker(self, results: ResultStage, worker: DeviceWorker, targets: SharedTargets) -> None:
        """Run targets on one worker until there are none left, or the worker is not usable."""
        taken: list[TargetRun] = []

        def take() -> Iterator[TargetRun]:
            for target in targets:
                taken.append(target)
                yield target

        process, predictor = SamplingProcess(), self.settings.predictor
        assert isinstance(predictor, Predictor)

        def sample(features: Any, templates: TargetTemplates | None, sampling: Sampling) -> Any:
            sampled = predictor.sample(features, templates, sampling, process.sample)
            # the network samples some features itself
            return share_arrays(sampled) if isinstance(sampled, dict) else sampled

        work = self._prepared(take(), sample)
        try:
            self._predict_all(work, results, worker)
        finally:
            work.close()
            process.close()
        if worker.usable or self.stop.is_set():
            return
        for target in taken:
            if target.is_open:
                self.locks.release(target.files.lock)
                targets.give_back(target)

    def _start_results(self) -> ResultStage:
        output, predictor = self.settings.output, self.settings.predictor
        relaxation = RelaxStage.start(output.relaxation, len(self.targets))
        return ResultStage(
            self.pool, self.num_workers, predictor.settings.rank, output.report, output.archive, relaxation,
            on_model=self._model_written, on_finished=self._finished, on_failed=self._fail,
        )  # fmt: skip

    def _searched(self) -> Iterator[TargetRun]:
        """Yield the unfinished targets, once their alignments exist if they are queries."""
        search = self.settings.search
        if search is None or self.chains is None or self.alignments is None:
            return self._unfinished()
        with_chains = self._searched_chains(search, self.chains)
        searched = search_ahead(
            with_chains, search, self.alignments, self.locks, self._begin, self._fail, self.progress.show
        )
        return run_ahead(searched, _SEARCHES_AHEAD, self.stop)

    def _searched_chains(self, search: SearchStage, chains: ChainStore) -> Iterator[TargetRun]:
        """Yield the unfinished targets, once the chains of complexes are searched."""
        for searched in search_chains_ahead(
            self._unfinished(), _complex_of, search, chains, self.locks, self.progress.show
        ):
            if searched.error is not None:
                self._fail(searched.target, searched.error)
                continue
            if searched.cost is not None:
                searched.target.add_cost(searched.cost)
            yield searched.target

    def _begin(self, target: TargetRun) -> TargetPlan | None:
        """Prepare the folder of a target that was just locked; return its plan, or None if it is finished.

        Raises:
            InputError: the run would replace finished results of other settings, or see `check_foldable`.
        """
        if isinstance(target.input, FastaRecord):
            check_foldable(target.input.sequence)
        remove_leftovers(target.files)
        if self.settings.output.overwrite and not target.begun:
            target.discard_work()
        target.begun = True
        plan = self._plan(target)
        if plan.is_finished:
            return None
        # both take seconds to start, in which the target is searched
        self.pool.start()
        if plan.jobs and not self.settings.workers:
            self.settings.predictor.warm_up(plan.jobs[0].source)
        return plan

    def _plan(self, target: TargetRun) -> TargetPlan:
        settings = self.settings
        return plan_target(target.files, target.input, settings.identities, settings.output)

    def _prepared(self, targets: Iterable[TargetRun], sample: Sample) -> Generator[_Work, None, None]:
        """Yield each job of each target, prepared ahead in a thread; `sample` makes its random features."""
        return run_ahead(self._prepare(targets, sample), _SAMPLES_AHEAD, self.stop)

    def _prepare(self, targets: Iterable[TargetRun], sample: Sample) -> Iterator[_Work]:
        """Yield each job of each target with its random features; targets locked by other runs come last."""
        locked_elsewhere = []
        for target in targets:
            if target.failed:
                continue
            if self.locks.try_acquire(target.files.lock):
                yield from self._prepare_locked(target, sample)
            else:
                locked_elsewhere.append(target)
        for target in locked_elsewhere:
            if not self.locks.acquire(target.files.lock, target.name):
                return
            yield from self._prepare_locked(target, sample)

    def _unfinished(self) -> Iterator[TargetRun]:
        return (target for target in self.targets if not self._skip_finished(target))

    def _skip_finished(self, target: TargetRun) -> bool:
        """Return True if an unlocked target is finished, or fails: no network predicts it, or see `_plan`."""
        try:
            self.settings.identities.sources_of(target.input)
        except InputError as error:
            self._fail(target, error)
            return True
        if not target.files.path("done").exists():
            return False
        try:
            if not self._plan(target).is_finished:
                return False
            # the run that finished it may have been killed before it had cleaned up
            if has_leftovers(target.files) and self.locks.try_acquire(target.files.lock):
                # another run may have changed it since
                if not self._plan(target).is_finished:
                    self.locks.release(target.files.lock)
                    return False
                self._release_finished(target)
        except Exception as error:
            self._fail(target, error)
            return True
        self._count_finished(target)
        return True

    def _release_finished(self, target: TargetRun) -> None:
        remove_leftovers(target.files)
        target.discard_work()
        self.locks.release(target.files.lock)

    def _count_finished(self, target: TargetRun) -> None:
        logger.info("%s: already done", target.name)
        self.progress.target_done(target.name)

    def _prepare_locked(self, target: TargetRun, sample: Sample) -> Iterator[_Work]:
        try:
            plan = self._begin(target)
            if plan is None:
                # another run has finished it since the last look
                self._release_finished(target)
                self._count_finished(target)
                target.predicted = True
                return
            plan, jobs = plan.stage_kept_models(target.files)
            # needed even without jobs: done.json contains their facts
            with_templates = self.settings.uses_templates(plan.jobs)
            features, templates = self.features.load(target, with_templates)
            if plan.finished is not None and "templates" in plan.finished.facts:
                # of models that are kept
                target.facts.setdefault("templates", plan.finished.facts["templates"])
            if self.settings.predictor.untrained and UNTRAINED not in target.warnings:
                target.warnings.append(UNTRAINED)
            if not jobs:
                yield _Work(target, plan, None, None, False, True)
                return
            predictor: Any = self.settings.predictor
            last: tuple[Any, Any] | None = None
            for job in jobs:
                if not target.is_open:
                    return
                sampling = predictor.sampling(job)
                if last is None or last[0] != sampling:
                    last = None  # freed before the next sample is made
                    last = sampling, sample(features, templates, sampling)
                yield _Work(target, plan, job, last[1], job is jobs[0], job is jobs[-1])
        except Exception as error:
            self._fail(target, error)

    def _predict_all(self, work: Iterable[_Work], results: ResultStage, runner: JobRunner) -> None:
        """Run all work; the GPU finishes a job while the next one is started."""
        start = time.perf_counter()
        with CallQueue(_JOBS_AHEAD) as collector:
            for step in work:
                target = step.target
                if target.predicted or target.postponed:
                    continue
                waited = target.facts.get("waited_for_features_seconds", 0.0) + time.perf_counter() - start
                target.facts["waited_for_features_seconds"] = round(waited, 3)
                plan, reached = step.plan, False
                if not target.failed and step.job is not None:
                    try:
                        add = partial(
                            self._add_model, target, step.job, plan, self._start(step, runner), results
                        )
                    except Exception as error:
                        if not self._fail_job(target, error, runner):
                            return
                    else:
                        added = collector.submit(add)
                        reached = plan.may_stop and added.result() > plan.stop_at_score
                    if reached:
                        plan = self._stop(target, plan, step.job)
                if (step.is_last or reached) and target.is_open:
                    target.predicted = True
                    collector.submit(partial(self._finish, target, plan, results))
                del step  # its sample is freed before the next one is made
                if not runner.usable:
                    return
                start = time.perf_counter()

    def _start(self, step: _Work, runner: JobRunner) -> Callable[[], JobResult]:
        """Start one job of a target; return a function that waits for its result."""
        target, job = step.target, step.job
        assert job is not None and step.sample is not None
        if self.settings.output.layout == "colabfold" and step.is_first:
            position = self.positions[target.name]
            colabfold_layout.log_query(target.name, position, len(self.targets), target.facts["residues"])
        logger.debug("%s: %s", target.name, self.settings.predictor.stage)
        return runner.start(target, job, step.sample, self.progress)

    def _add_model(
        self,
        target: TargetRun,
        job: Job,
        plan: TargetPlan,
        collect: Callable[[], JobResult],
        results: ResultStage,
    ) -> float:
        """Wait for the result of a job, and queue the writing of its files; return its mean pLDDT, or 0."""
        try:
            result = collect()
            target.add_cost(result.cost)
            target.add_memory_facts(result.facts)
            prediction, key = result.prediction, job.fingerprint(plan.fingerprint)
            folder, seconds = target.files.staging_folder, result.cost.seconds
            model = PredictedModel(folder, job.tag, key, prediction, result.origin, seconds)
            results.add_model(target, model)
        except Exception as error:
            self._fail(target, error)
            return 0.0
        return prediction.mean_plddt

    def _fail_job(self, target: TargetRun, error: Exception, runner: JobRunner) -> bool:
        """Handle the error of a job; return False if the run was interrupted."""
        if self.stop.is_set():
            # the run that continues repeats the job
            return False
        if isinstance(error, OutOfMemory) and runner.postpones:
            self._postpone(target, error)
        else:
            self._fail(target, error)
        return True

    def _postpone(self, target: TargetRun, error: OutOfMemory) -> None:
        """Leave a target that does not fit one device until all of them are free."""
        target.postponed = True
        count = self.settings.devices_per_target
        devices = "one device" if count == 1 else f"{count} devices"
        self.locks.release(target.files.lock)
        logger.info(
            "%s: does not fit %s (%s), so all predict it together at the end", target.name, devices, error
        )

    def _stop(self, target: TargetRun, plan: TargetPlan, job: Job) -> TargetPlan:
        """Return a target's plan without the jobs after the one that reached --stop-at-score."""
        shorter = plan.stop_after(job.tag)
        if skipped := len(plan.jobs) - len(shorter.jobs):
            text = f"{skipped} more model{'s' if skipped > 1 else ''}"
            logger.info(
                "%s: pLDDT is above %g (--stop-at-score), %s not run", target.name, plan.stop_at_score, text
            )
        return shorter

    def _finish(self, target: TargetRun, plan: TargetPlan, results: ResultStage) -> None:
        if target.failed:
            return
        if self.locks.is_held(target.files.lock):
            try:
                results.finish(target, plan)
            except Exception as error:
                self._fail(target, error)
        else:
            # this process was suspended, so that its lock looked stale to another run
            logger.warning("%s: another run has taken it over", target.name)
            target.failed = True
            self.progress.target_done(target.name)

    def _model_written(self, target: TargetRun, result: ModelResult) -> None:
        if self.settings.output.layout == "colabfold":
            colabfold_layout.log_model(result)
        elif len(self.settings.identities.jobs(target.input)) > 1:
            untrained = self.settings.predictor.untrained
            logger.info(
                "%s: %s: %s, %.1f s", target.name, result.tag, result.describe(untrained), result.seconds
            )

    def _finished(self, target: TargetRun, record: DoneRecord) -> None:
        self.locks.release(target.files.lock)
        if self.settings.output.layout == "colabfold":
            colabfold_layout.log_ranking(record.ranking, record.rank_by)
        _log_result(target, record, self.settings.predictor.untrained)
        if target.not_relaxed:
            reason = "; ".join(target.not_relaxed)
            self.failures.record(target.name, NotRelaxed(f"{reason}; the unrelaxed structure is kept"))
        self.progress.target_done(target.name)

    def _fail(self, target: TargetRun, error: BaseException) -> None:
        if target.failed:
            # of two jobs that overlap, both may fail
            return
        target.failed = True
        self.locks.release(target.files.lock)
        self.failures.record(target.name, error)
        self.progress.target_done(target.name)


def _log_result(target: TargetRun, record: DoneRecord, untrained: bool) -> None:
    best = record.ranking[0]
    fields = {
        "target": target.name,
        "residues": record.facts["residues"],
        "alignment_rows": record.facts["alignment_rows"],
        "plddt": best.plddt,
        "ptm": best.ptm,
        "iptm": best.iptm,
        "untrained": untrained,
        "copied_from": best.copied_from,
        "seconds": round(sum(cost.seconds for cost in record.costs), 3),
        "structure": str(target.files.structure(1, best.tag)),
    }
    logger.info(
        "%s: %d residues, %d alignment rows, %s (%s), %.1f s → %s",
        target.name,
        fields["residues"],
        fields["alignment_rows"],
        best.describe(untrained),
        best.tag,
        fields["seconds"],
        fields["structure"],
        extra={"fields": fields},
    )
