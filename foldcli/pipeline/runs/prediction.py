"""The runs of `foldcli fold`, `screen` and `predict`, from the values of options to `run.run_targets`.

Modules that import torch are imported once `start` has started the processes and the imports ahead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from foldcli.families.registry import check_parameters, find_family, with_params
from foldcli.families.reporting import PlanHeading
from foldcli.families.settings import NetworkOptions
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.screen import Background
from foldcli.inputs.targets import FoldInput, TargetInput, find_fold_targets
from foldcli.options import ranks as rank_options
from foldcli.paths import cache_dir, check_writable_folder, make_writable_folder
from foldcli.pipeline.network.start import Processes, Startup, start
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.results.relaxation import check_relaxation
from foldcli.pipeline.runs.dry_run import database_heading, print_prediction_plan
from foldcli.pipeline.search.options import KeptState, SearchOptions
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.search.search_process import SearchProcess
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.defaults import with_default_method
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings, TemplateOptions
from model.parallel.rank_assignment import RankAssignment

if TYPE_CHECKING:
    from foldcli.pipeline.network.predictor import Predictor
    from foldcli.pipeline.runs.state import RunSettings

# given the feature cache and the failures of the run, returns names and targets
FindTargets: TypeAlias = Callable[[Path, Failures], Sequence[tuple[str, TargetInput]]]


@dataclass(frozen=True)
class _Request:
    """A run of predictions as its command line requests it.

    Args:
        search: database and settings of the searches; None if no target needs a search.
        templates: options of the templates; None for no templates.
        assignment: the rank that torchrun has assigned to this process, or None.
        threads: value of `--threads`.
        dry_run: print the plan of the run, and predict nothing.
        kept: what a session keeps; None in a command.
    """

    search: SearchOptions | None
    network: NetworkOptions
    templates: TemplateOptions | None
    features: FeatureSettings
    output: OutputSettings
    assignment: RankAssignment | None
    threads: int
    dry_run: bool
    as_json: bool
    kept: KeptState | None

    @classmethod
    def from_options(
        cls,
        search: SearchOptions | None,
        network: NetworkOptions,
        assignment: RankAssignment | None,
        kept: KeptState | None,
        options: dict[str, Any],
    ) -> "_Request":
        """Create the request from the values of all options; see the class for the other arguments."""
        templates = TemplateOptions.from_options(options, options["threads"])
        find_family(network.params).check_options(options, _given_options())
        return cls(
            search=search,
            network=network,
            templates=templates,
            features=FeatureSettings.from_options(options),
            output=OutputSettings.from_options(options),
            assignment=assignment,
            threads=options["threads"],
            dry_run=options["dry_run"],
            as_json=options["as_json"],
            kept=kept,
        )


def run_fold(queries: Sequence[str], rna_db: str | None, values: dict[str, Any]) -> int | None:
    """Predict queries, with searches; return the exit code of a process that only takes part.

    Args:
        queries: the inputs.
        rna_db: the database of RNA, or None.
        values: see `run_predictions`.
    """
    search, family = SearchOptions.from_options(values), find_family(values["params"])
    if rna_db is not None and not family.prepares_jobs:
        raise click.UsageError("--rna-db is for all-atom networks (--params openfold3).")

    def find_targets(cache: Path, failures: Failures) -> list[tuple[str, FoldInput]]:
        settings = search.alignment.search
        arguments = queries, settings.comp_bias_corr, settings.matrix, cache, failures
        targets = find_fold_targets(*arguments, family.read_queries)
        if rna_db is None:
            return targets
        rna = RnaSearch(rna_db, search.alignment, cache)
        return rna.add_alignments(targets, failures, values["dry_run"])

    return run_predictions(find_targets, search, **values)


def run_screen(
    files: Sequence[str], pairs: str | None, background: int | None, values: dict[str, Any]
) -> int | None:
    """Predict complexes of chains, with searches; see `run_fold`.

    Args:
        files: files of chains.
        pairs: table of the complexes, or None for all pairs.
        background: number of pairs of the background, or None for none.
        values: see `run_predictions`.
    """
    search = SearchOptions.from_options(values)

    def find_targets(cache: Path, failures: Failures) -> list[tuple[str, FoldInput]]:
        settings = search.alignment.search
        sources = QuerySources(files, settings.comp_bias_corr, settings.matrix)
        drawn = None if background is None else Background(background, values["random_seed"] or 0)
        return find_family(values["params"]).read_screen(sources, pairs, failures, drawn)

    return run_predictions(find_targets, search, **values)


def run_predict(targets: Sequence[str], all_cached: bool, values: dict[str, Any]) -> int | None:
    """Predict alignments, features or jobs; see `run_fold`."""
    find_targets = find_family(values["params"]).find_predict_targets
    return run_predictions(partial(find_targets, targets, all_cached), None, **values)


def run_predictions(
    find_targets: FindTargets,
    search: SearchOptions | None,
    kept: KeptState | None = None,
    **option_values: Any,
) -> int | None:
    """Find the targets and the parameters, and run the stages, or print what they would do.

    If torchrun has started several processes, this is done by the first. The others only take part in its
    predictions, and return their exit codes.

    Args:
        find_targets: returns names and targets.
        search: database and settings of the searches; None if no target needs a search.
        kept: what a session keeps; None in a command.
        option_values: values of the options that the commands share; others are ignored.
    """
    assignment = RankAssignment.from_environment()
    network = _network_options(option_values, assignment)
    if assignment is not None and assignment.rank > 0:
        from foldcli.pipeline.network.rank_server import serve_rank  # imports torch

        is_dry = option_values["dry_run"]
        return None if is_dry else serve_rank(network, option_values["threads"], assignment)
    request = _Request.from_options(search, network, assignment, kept, option_values)
    output = request.output
    if output.relaxation.num_models:
        check_relaxation(output.relaxation)
    if not request.dry_run:
        check_writable_folder(output.folder)
    failures = Failures(output.folder, output.shard)
    targets = find_targets(request.features.cache, failures)
    selected = output.shard.select(targets)
    if selected or request.dry_run:
        _predict(request, targets if request.dry_run else selected, len(selected), failures)
        return None
    if assignment is not None:
        from model.parallel.session import decline  # imports torch

        decline(assignment)
    output.shard.log_if_empty(len(targets))
    failures.finish()
    return None


def _network_options(options: dict[str, Any], assignment: RankAssignment | None) -> NetworkOptions:
    """Return the options of the network, with the settings of the family that `--params` names."""
    params = options["params"]
    ranks = rank_options.number_of_ranks(options["gpus_per_target"], assignment, find_family(params).unshared)
    if ranks > 1 and options["dropout"]:
        raise click.UsageError("--dropout: several GPUs cannot predict a target together with it")
    return with_params(NetworkOptions.from_options(options | {"gpus_per_target": ranks}), params)


def _predict(
    request: _Request, targets: Sequence[tuple[str, TargetInput]], num_selected: int, failures: Failures
) -> None:
    """Start the processes and the imports that predictions need, and then run the stages or print the plan.

    Args:
        request: the run.
        targets: names and inputs; in a dry run those of all shards.
        num_selected: number of those of this shard.
        failures: the failures so far.
    """
    family = find_family(request.network.params)
    has_work = not (request.dry_run or _are_finished(targets, request.output))
    processes = Processes.choose(
        request.network, request.assignment, num_selected, request.threads, has_work, request.dry_run
    )
    kinds = family.kinds(request.network, [target for _, target in targets])
    network = with_default_method(request.network, request.templates, kinds)
    search = None if request.search is None else request.search.with_database()
    request = replace(request, network=network, search=search)
    search_process = None
    if has_work and search is not None and request.kept is None:
        predicts_here = not processes.in_workers and network.gpus_per_target == 1 and family.has_network
        search_process = search.start_process(network.device, predicts_here)
    loaded = {} if request.kept is None else request.kept.networks
    startup = start(network, not (request.dry_run or loaded), kinds, processes, loaded)
    # this imports torch, which `start` has just imported
    from foldcli.pipeline.network.ranks import open_predictor

    runs_elsewhere = request.dry_run or processes.in_workers
    with open_predictor(network, startup, request.threads, request.assignment, runs_elsewhere) as predictor:
        if has_work and not (processes.in_workers or loaded):
            predictor.warm_up(predictor.sources[0])
        # imports more while the GPU is warmed up
        templates, identities = _identities(request, predictor)
        if request.dry_run:
            _print_plan(request, targets, predictor, identities, failures)
        else:
            settings = _run_settings(request, predictor, identities, templates, startup, search_process)
            from foldcli.pipeline.runs.run import run_targets  # imports torch

            make_writable_folder(request.output.folder)
            run_targets(targets, settings, failures, request.as_json)


def _identities(request: _Request, predictor: "Predictor") -> tuple[TemplateStage | None, TargetIdentities]:
    """Open the search for templates, and check the parameters; return the identities of targets.

    The identities lack the request for alignments.
    """
    templates = None
    if request.templates is not None:
        search = predictor.family.template_search(request.templates.search, predictor.sources[0])
        if search is not None:
            templates = TemplateStage.open(replace(request.templates, search=search), cache_dir())
    identities = TargetIdentities(
        predictor.sources,
        check_parameters(predictor.sources),
        predictor.settings,
        templates=None if templates is None else templates.identity(),
    )
    return templates, identities


def _print_plan(
    request: _Request,
    targets: Sequence[tuple[str, TargetInput]],
    predictor: "Predictor",
    identities: TargetIdentities,
    failures: Failures,
) -> None:
    """Print the plan of a run; raises the exceptions of `print_prediction_plan`."""
    headings: tuple[PlanHeading, ...] = ()
    if request.search is not None:
        database = request.search.open_existing(request.network.device)
        if database is not None:
            alignments = AlignmentRequest(database.checksums, request.search.alignment)
            identities = replace(identities, request=alignments)
        headings = (database_heading(str(request.search.database), database),)
    print_prediction_plan(targets, identities, predictor, request.output, failures, headings, request.as_json)


def _run_settings(
    request: _Request,
    predictor: "Predictor",
    identities: TargetIdentities,
    templates: TemplateStage | None,
    startup: Startup,
    search_process: SearchProcess | None,
) -> "RunSettings":
    """Open the database, and return the settings and stages of a run."""
    from foldcli.pipeline.network.device_workers import worker_settings  # imports torch
    from foldcli.pipeline.runs.state import RunSettings  # imports torch

    network, kept, stage, description = request.network, request.kept, None, None
    if request.search is not None:
        search, device = request.search, network.device
        stage, description = kept.open(search, device) if kept else search.open(device, search_process)
        identities = replace(identities, request=stage.request)
    ranks, devices = network.gpus_per_target, len(network.devices)
    in_workers = rank_options.predicts_in_workers(devices, ranks, request.assignment)
    workers = worker_settings(network, predictor, request.threads) if in_workers else ()
    return RunSettings(
        output=request.output,
        features=request.features,
        predictor=predictor,
        identities=identities,
        search=stage,
        templates=templates,
        database=description,
        workers=workers,
        devices_per_target=ranks,
        startup=startup,
        report=None if kept is None else kept.report,
    )


def _given_options() -> set[str]:
    context = click.get_current_context(silent=True)
    if context is None:
        return set()
    given = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is given}


def _are_finished(targets: Sequence[tuple[str, TargetInput]], output: OutputSettings) -> bool:
    """Return True if all targets have results."""
    return all(output.files(name).path("done").exists() for name, _ in targets)
