"""The run that `foldcli fold`, `foldcli screen` and `foldcli predict` start; not itself a command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from foldcli.logs import logger
from foldcli.options import ranks as rank_options
from model.parallel.rank_assignment import RankAssignment

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures
    from foldcli.inputs.targets import TargetInput
    from foldcli.pipeline.runs.dry_run import PlanHeading
    from foldcli.pipeline.search.process import SearchProcess
    from foldcli.pipeline.search.stage import SearchStage
    from foldcli.pipeline.targets.alignment_request import AlignmentRequest
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from foldcli.pipeline.targets.settings import OutputSettings

# given the feature cache and the failures of the run, returns names and targets
FindTargets: TypeAlias = "Callable[[Path, Failures], Sequence[tuple[str, TargetInput]]]"


# largest share of a GPU's memory that searches use; the network needs the rest
_GPU_SHARE = 0.5


@dataclass(frozen=True)
class SearchOptions:
    """The database and the settings of a run's searches.

    Args:
        database: value of `--db`; None is the package's library.
        alignment: settings of the searches and alignments.
    """

    database: str | None
    alignment: "AlignmentSettings"

    def with_database(self) -> "SearchOptions":
        """Return options with a database: the given one, or with a warning the package's library."""
        from foldcli.pipeline.targets.defaults import library_database

        return replace(self, database=str(library_database())) if self.database is None else self

    def plan(self, device: str) -> "tuple[AlignmentRequest | None, PlanHeading]":
        """Return the request for alignments and the heading of the plan, for `--dry-run`.

        The request is None if the database would first have to be converted.

        Args:
            device: value of `--device`.

        Raises:
            InputError: see `DatabaseSource.open_existing`.
        """
        from foldcli.pipeline.runs.dry_run import database_heading
        from foldcli.pipeline.search.searcher import DatabaseSource
        from foldcli.pipeline.targets.alignment_request import AlignmentRequest

        assert self.database is not None
        database = DatabaseSource(self.database, device).open_existing()
        request = None if database is None else AlignmentRequest.to_database(database, self.alignment)
        return request, database_heading(self.database, database)

    def start_process(self, device: str) -> "SearchProcess":
        """Start a process for the searches; see `foldcli.pipeline.search.process`."""
        from foldcli.pipeline.search.process import SearchProcess

        assert self.database is not None
        return SearchProcess(self.database, device, _GPU_SHARE)

    def open(self, device: str, process: "SearchProcess | None") -> "tuple[SearchStage, str]":
        """Open the database for searches; return the search stage and a description of the database.

        Args:
            device: value of `--device`.
            process: from `start_process`; None to search in this process.

        Raises:
            InputError, MissingError: see `DatabaseSource.open`.
        """
        from foldcli.pipeline.search.searcher import DatabaseSource
        from foldcli.pipeline.search.stage import SearchStage

        assert self.database is not None
        source = DatabaseSource(self.database, device)
        database = source.open()
        open_here = partial(source.make_searcher, database, _GPU_SHARE)
        searcher = open_here() if process is None else process.open(database, open_here)
        description = f"{self.database} of {database.manifest.sequences:,} sequences"
        return SearchStage(searcher, self.alignment, show_progress=False), description


def run_predictions(
    find_targets: FindTargets,
    search: SearchOptions | None,
    *,
    threads: int,
    dry_run: bool,
    as_json: bool,
    gpus_per_target: int,
    **option_values: Any,
) -> int | None:
    """Find the targets and the parameters, and run the stages, or print what they would do.

    If torchrun has started several processes, this is done by the first. The others only take part in its
    predictions, and return their exit codes.

    Args:
        find_targets: returns names and targets.
        search: database and settings of the searches; None if no target needs a search.
        threads: value of `--threads`.
        dry_run: print the plan of the run, and predict nothing.
        as_json: value of `--json`.
        gpus_per_target: value of `--gpus-per-target`.
        option_values: values of all other options that the commands share.
    """
    from foldcli.families.registry import find_family, with_params
    from foldcli.families.settings import NetworkOptions
    from foldcli.inputs.failures import Failures
    from foldcli.paths import cache_dir, check_writable_folder, make_writable_folder
    from foldcli.pipeline.network.startup import start
    from foldcli.pipeline.search.process import needs_process
    from foldcli.pipeline.targets.defaults import with_default_method
    from foldcli.pipeline.targets.settings import (
        FeatureSettings,
        OutputSettings,
        TemplateOptions,
    )

    assignment = RankAssignment.from_environment()
    params = option_values["params"]
    family = find_family(params)
    ranks = rank_options.number_of_ranks(gpus_per_target, assignment, family.unshared)
    network = with_params(NetworkOptions.from_options(option_values | {"gpus_per_target": ranks}), params)
    if assignment is not None and assignment.rank > 0:
        if dry_run:
            return None
        from foldcli.pipeline.network.rank_server import serve_rank

        return serve_rank(network, threads, assignment)
    template_options = TemplateOptions.from_options(option_values, threads)
    family.check_options(option_values, _given_options())
    features = FeatureSettings.from_options(option_values)
    output = OutputSettings.from_options(option_values)
    if output.relaxation.num_models:
        from foldcli.pipeline.results.relaxation import check_relaxation

        check_relaxation(output.relaxation)

    if not dry_run:
        check_writable_folder(output.folder)
    failures = Failures(output.folder, output.shard)
    targets = find_targets(features.cache, failures)
    selected = output.shard.select(targets)
    if not selected and not dry_run:
        if assignment is not None:
            from model.parallel.session import decline

            decline(assignment)
        output.shard.log_if_empty(len(targets))
        failures.finish()
        return None

    devices = network.devices
    in_workers = rank_options.predicts_in_workers(len(devices), ranks, assignment)
    if unused := rank_options.unused_devices(devices, ranks, assignment):
        use = "used only for targets that do not fit the others" if in_workers else "not used"
        logger.warning(
            "%s: %s, because each target takes %d of %d devices (--gpus-per-target)",
            ", ".join(unused), use, ranks, len(devices),
        )  # fmt: skip
    worker_devices = devices[: min(len(devices) // ranks, len(selected)) * ranks] if in_workers else ()
    kinds = family.kinds(network, [target for _, target in (targets if dry_run else selected)])
    network = with_default_method(network, template_options, kinds)
    family = find_family(network.params)
    search_process = None
    has_work = not (dry_run or _are_finished(selected, output))
    if search is not None:
        search = search.with_database()
        predicts_here = not in_workers and ranks == 1 and family.has_network
        if has_work and needs_process(network.device, predicts_here, str(search.database)):
            search_process = search.start_process(network.device)
    starts_ranks = ranks > 1 and assignment is None and not (dry_run or in_workers)
    rank_threads = threads if starts_ranks else None
    # other ranks get their features from the first one
    samples = has_work and (assignment is None or assignment.rank == 0)
    sampling = rank_options.sampling_processes(network.device, len(worker_devices) // ranks) if samples else 0
    startup = start(
        network, not dry_run, worker_devices, kinds, rank_threads, sampling,
        reads_features=search_process is None,
    )  # fmt: skip
    # this imports torch, which `start` has just imported
    from foldcli.pipeline.network.ranks import open_predictor

    with open_predictor(network, startup, threads, assignment, dry_run or in_workers) as predictor:
        if has_work and not in_workers:
            predictor.warm_up(predictor.sources[0])
        # imported while the GPU is warmed up
        from foldcli.families.registry import check_parameters
        from foldcli.pipeline.network.device_workers import worker_settings
        from foldcli.pipeline.prepare.template_stage import TemplateStage
        from foldcli.pipeline.runs.prediction_plan import print_prediction_plan
        from foldcli.pipeline.runs.run import run_targets
        from foldcli.pipeline.runs.state import RunSettings
        from foldcli.pipeline.targets.identity import TargetIdentities

        templates = None
        if template_options is not None:
            search_settings = family.template_search(template_options.search, predictor.sources[0])
            template_options = replace(template_options, search=search_settings)
            templates = TemplateStage.open(template_options, cache_dir())
        template_identity = None if templates is None else templates.identity()
        identities = TargetIdentities(
            predictor.sources,
            check_parameters(predictor.sources),
            predictor.settings,
            templates=template_identity,
        )
        if dry_run:
            headings: tuple[PlanHeading, ...] = ()
            if search is not None:
                request, heading = search.plan(network.device)
                identities, headings = replace(identities, request=request), (heading,)
            print_prediction_plan(targets, identities, predictor, output, failures, headings, as_json)
            return None
        stage, description = None, None
        if search is not None:
            stage, description = search.open(network.device, search_process)
            identities = replace(identities, request=stage.request)
        workers = worker_settings(network, predictor, threads) if in_workers else ()
        settings = RunSettings(
            output, features, predictor, identities, stage, templates, description, workers, ranks,
            startup.worker_pools, startup.sampling,
        )  # fmt: skip
        make_writable_folder(output.folder)
        run_targets(selected, settings, failures, as_json)
    return None


def _given_options() -> set[str]:
    """Return the names of the options on the command line."""
    context = click.get_current_context(silent=True)
    if context is None:
        return set()
    given = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is given}


def _are_finished(targets: "Sequence[tuple[str, TargetInput]]", output: "OutputSettings") -> bool:
    """Return True if all targets have results."""
    return all(output.files(name).path("done").exists() for name, _ in targets)
