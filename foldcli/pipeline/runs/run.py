"""The flow of targets through `foldcli fold` and `foldcli predict`.

A run is a list of targets that pass through stages, each working on the whole list, a bounded number of
targets ahead of the next stage:

1. search (`fold` only), in batches, in a thread            `search.chain_search.ChainSearch`
2. features, templates and random features, in a thread     `preparation.JobPreparation`
3. the network, in the main thread                          `network_stage.NetworkStage`,
   or with several devices in a process for each,
   which together predict what does not fit one             `several_devices.predict_in_workers`
4. files, ranking, report and done.json, in processes       `results.stage.ResultStage`

The network is what a run waits for. The state of a target is on the disk: staged files in its work folder,
each with the fingerprint of what it depends on, so that an interrupted run continues. done.json, written
last, marks a finished target.

Alignments of chains are in the feature cache: their searches touch no target's folder, and lock only the
chains. A run locks a target when its features are next (`JobPreparation.prepare`), plans it, and releases it
when it is finished. To leave out targets that are finished before, it plans those that have a done.json at
the beginning too, without a lock (`JobPreparation.skip_finished`).
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from features.complexes.pairing import DEFAULT_PAIRING
from foldcli.errors import IncompleteTarget, SomeTargetsFailed, TargetFailed
from foldcli.inputs.failures import Failures
from foldcli.logs import log_time_since_start, logger
from foldcli.outputs.done import DoneRecord
from foldcli.outputs.model_files import ModelResult
from foldcli.outputs.summary import RunSummary, remove_run_leftovers
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.network.job_runners import LocalRunner
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.processes.background import run_ahead
from foldcli.pipeline.processes.shared_arrays import load_arrays
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.publishing import load_libraries
from foldcli.pipeline.results.relaxation import RelaxStage
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.runs.network_stage import NetworkStage
from foldcli.pipeline.runs.preparation import SAMPLES_AHEAD, JobPreparation
from foldcli.pipeline.runs.several_devices import predict_in_workers
from foldcli.pipeline.runs.state import RunSettings, RunState
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.layouts import RunDescription, layout_of
from foldcli.pipeline.targets.order import in_run_order
from msa.base.errors import MissingError
from msa.base.hardware import available_cores
from msa.base.services.service import close_all
from msa.base.switch_interval import short_switch_interval
from msa.io.fasta import FastaRecord

# searched targets that wait for their features
_SEARCHES_AHEAD = 256
_MAX_WORKERS = 6


def run_targets(
    named_inputs: Sequence[tuple[str, object]],
    settings: RunSettings,
    failures: Failures,
    as_json: bool = False,
) -> None:
    """Run all targets through the stages, then log the summary, and write summary.tsv and the index page."""
    output, predictor = settings.output, settings.predictor
    remove_run_leftovers(output.folder)
    failures.expect(len(named_inputs))
    run_files = RunDescription(
        output, predictor.settings, predictor.sources, len(named_inputs), settings.templates is not None,
        DEFAULT_PAIRING if settings.search is None else settings.search.settings.pairing, settings.database,
    )  # fmt: skip
    layout = layout_of(output.layout)
    layout.begin_run(run_files)
    log_time_since_start("the run begins")
    logger.info("%s", settings.opening_line(len(named_inputs)))
    if (description := predictor.family.describe_network(predictor.sources[0])) is not None:
        logger.info("%s", description)
    summary = RunSummary(output.folder, output.layout, output.shard, [name for name, _ in named_inputs])
    at_once = max(1, len(settings.device_groups()))
    ordered = in_run_order(named_inputs, at_once, settings.identities.approximate_size)
    targets = [TargetRun(output.files(name), target_input) for name, target_input in ordered]

    def write_tables(failed: Sequence[str]) -> None:
        summary.write(failed)
        # a run without results keeps the methods of earlier ones
        if summary.models(failed):
            layout.write_methods(run_files)

    try:
        input_indices = {name: index for index, (name, _) in enumerate(named_inputs)}
        run = _Run(RunState(targets, settings, failures), input_indices)
        with run.opened():
            if settings.workers:
                run.predict_in_workers()
            else:
                run.predict_here()
    except BaseException:
        # its cause is reported, and not that the table cannot be written either
        with contextlib.suppress(OSError):
            write_tables(_failed_names(failures))
        raise
    failed = _failed_names(failures)
    write_tables(failed)
    if as_json:
        for model in summary.models(failed):
            print(json.dumps(model), flush=True)
    summary.log(failed, failures.path)
    from foldcli.report.make import make_index, try_index  # jinja2

    try:
        failures.finish()
    except (SomeTargetsFailed, TargetFailed):
        try_index(output.folder, output.report)
        raise
    make_index(output.folder, output.report)
    log_time_since_start("the index is written")


def _failed_names(failures: Failures) -> list[str]:
    """Return the names of the targets without results of this run."""
    return [name for name, error in failures.failed if not isinstance(error, IncompleteTarget)]


class _Run:
    """The stages of one run; see `run_targets`."""

    def __init__(self, state: RunState, input_indices: dict[str, int]) -> None:
        self._state, self._settings = state, state.settings
        targets, settings = state.targets, state.settings
        self._num_workers = max(1, min(_MAX_WORKERS, available_cores() // 2, len(targets)))
        self._pool = WorkerPool(self._num_workers, partial(load_libraries, settings.output.report))
        self._store: ChainStore | None = None
        if settings.search is not None:
            store = CacheStore(settings.features.cache, settings.search.request, settings.output.overwrite)
            self._store = ChainStore(store)
        features = FeatureStage(settings.features, settings.templates, input_indices, self._store)
        self._preparation = JobPreparation(state, features)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the locks of targets; at the end, stop all threads and processes.

        An interrupt ends the run once the predicted models are written.
        """
        with self._state.locks, self._state.progress:
            try:
                yield
                if self._state.ended_by is not None:
                    raise self._state.ended_by
                log_time_since_start("all targets are finished")
            finally:
                self._state.stop.set()
                self._pool.terminate()
                startup = self._settings.startup
                close_all(startup.worker_services)
                if startup.sampling is not None:
                    startup.sampling.terminate()

    def predict_here(self) -> None:
        """Predict with the predictor of this process."""
        prepared = self._preparation.prepare(self._search(), load_arrays)
        steps = chain.from_iterable(steps for _, steps in prepared)
        work = run_ahead(steps, SAMPLES_AHEAD, self._state.stop)
        # if all targets are finished, there is nothing to predict, and no worker is started
        if (first := next(work, None)) is not None:
            log_time_since_start("the first features are ready")
            runner = LocalRunner(self._settings.predictor)
            with self._start_results() as results, self._gpu_launches():
                NetworkStage(self._state, results, runner).run(chain([first], work))
                log_time_since_start("the last prediction is made")
            if not runner.usable:
                raise MissingError(
                    "the GPU cannot be used by this process any more",
                    "See the messages above; run the same command again to continue.",
                )

    def predict_in_workers(self) -> None:
        """Predict in a worker process for each of several devices."""
        predict_in_workers(
            self._state, self._preparation, self._search(), self._start_results, self._gpu_launches()
        )

    def _search(self) -> Iterator[TargetRun]:
        """Yield the unfinished targets, once all chains that they need have been searched."""
        search, store = self._settings.search, self._store
        targets = (target for target in self._state.targets if not self._preparation.skip_finished(target))
        if search is None or store is None:
            return targets
        return run_ahead(self._searched(targets, search, store), _SEARCHES_AHEAD, self._state.stop)

    def _searched(
        self, targets: Iterable[TargetRun], search: SearchStage, store: ChainStore
    ) -> Iterator[TargetRun]:
        """Search, and yield the targets whose chains do not fail."""
        state, identities = self._state, self._settings.identities

        def chains_of(target: TargetRun) -> Sequence[FastaRecord]:
            return identities.family_of(target.input).chains_to_search(target.input)

        chain_search = ChainSearch(search, store, state.locks)
        for result in chain_search.search_ahead(targets, chains_of, state.progress.show):
            if result.error is not None:
                state.fail(result.target, result.error)
                continue
            if result.cost is not None:
                result.target.add_cost(result.cost)
            yield result.target
        # the network gets the memory of the searches
        search.close()

    def _gpu_launches(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which this thread soon gets the interpreter's lock to launch GPU kernels."""
        on_gpu = self._settings.predictor.memory.device != "cpu"
        return short_switch_interval() if on_gpu else contextlib.nullcontext()

    def _start_results(self) -> ResultStage:
        # they take seconds to start, in which the first job runs
        self._pool.start()
        output, predictor = self._settings.output, self._settings.predictor
        relaxation = RelaxStage.start(output.relaxation, len(self._state.targets))
        return ResultStage(
            self._pool, self._num_workers, predictor.settings.rank, output.report, output.archive, relaxation,
            on_model=self._on_model_written, on_finished=self._on_finished, on_failed=self._state.fail,
        )  # fmt: skip

    def _on_model_written(self, target: TargetRun, result: ModelResult) -> None:
        settings = self._settings
        is_only = sum(len(job.tags) for job in settings.identities.jobs(target.input)) == 1
        layout = layout_of(settings.output.layout)
        layout.log_model(target.name, result, is_only, settings.predictor.is_untrained)

    def _on_finished(self, target: TargetRun, record: DoneRecord) -> None:
        self._state.locks.release(target.files.lock_path)
        layout_of(self._settings.output.layout).log_ranking(record.ranking, record.rank_by)
        size = self._settings.identities.family_of(target.input).describe_size(record.facts)
        _log_result(target, record, size, self._settings.predictor.is_untrained)
        is_reported = self._settings.output.report.is_made(target.files)
        if (error := target.incompleteness(is_reported)) is not None:
            self._state.failures.record(target.name, error)
        self._state.progress.target_done(target.name)


def _log_result(target: TargetRun, record: DoneRecord, size: str, untrained: bool) -> None:
    best = record.ranking[0]
    fields = {
        "target": target.name,
        "residues": record.facts.residues,
        "alignment_rows": record.facts.alignment_rows,
        "plddt": best.plddt,
        "ptm": best.ptm,
        "iptm": best.iptm,
        "untrained": untrained,
        "copied_from": best.copied_from,
        "seconds": round(sum(cost.seconds for cost in record.costs), 3),
        "structure": str(target.files.structure_path(1, best.tag)),
    }
    logger.info(
        "%s: %s, %s (%s), %.1f s → %s",
        target.name,
        size,
        best.describe(untrained),
        best.tag,
        fields["seconds"],
        fields["structure"],
        extra={"fields": fields},
    )
