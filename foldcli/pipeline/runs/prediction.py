"""The runs of `foldcli fold`, `screen` and `predict`: find targets, choose settings, start, run the stages.

Modules that import torch are imported once `start` has started the processes and the imports ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from foldcli.errors import OptionError
from foldcli.families.registry import check_parameters
from foldcli.families.reporting import PlanHeading
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.screen import Background
from foldcli.inputs.targets import FoldInput, TargetInput, find_fold_targets
from foldcli.paths import cache_dir, check_writable_folder, make_writable_folder
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.start import Startup, start
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.results.relaxation import check_relaxation
from foldcli.pipeline.runs.dry_run import database_heading, print_prediction_plan
from foldcli.pipeline.runs.request import KeptState, PredictionRequest
from foldcli.pipeline.search.rna import RnaSearch
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets import plan
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.progress import Report

if TYPE_CHECKING:
    from foldcli.pipeline.network.predictor import Predictor
    from foldcli.pipeline.runs.state import RunSettings

# given the feature cache and the failures of the run, returns names and targets
FindTargets: TypeAlias = Callable[[Path, Failures], Sequence[tuple[str, TargetInput]]]
# opens the database for searches; returns the search stage and a description of the database
OpenSearch: TypeAlias = Callable[[], tuple[SearchStage, str]]


def fold_targets(request: PredictionRequest, queries: Sequence[str], rna_db: str | None) -> FindTargets:
    """Return a function that finds the targets of `foldcli fold`.

    Args:
        request: the run.
        queries: the inputs.
        rna_db: the database of RNA, or None.

    Raises:
        OptionError: the network does not predict RNA.
    """
    family, search = request.family, request.search
    assert search is not None
    if rna_db is not None and not family.prepares_jobs:
        raise OptionError("--rna-db is for all-atom networks (--params openfold3).")

    def find_targets(cache: Path, failures: Failures) -> list[tuple[str, FoldInput]]:
        settings = search.alignment.search
        arguments = queries, settings.comp_bias_corr, settings.matrix, cache, failures
        targets = find_fold_targets(*arguments, family.read_queries)
        if rna_db is None:
            return targets
        return RnaSearch(rna_db, search.alignment, cache).add_alignments(targets, failures, request.dry_run)

    return find_targets


def screen_targets(
    request: PredictionRequest, files: Sequence[str], pairs: str | None, background: Background | None
) -> FindTargets:
    """Return a function that finds the targets of `foldcli screen`.

    Args:
        request: the run.
        files: files of chains.
        pairs: table of the complexes, or None for all pairs.
        background: the pairs to draw in addition, or None.
    """
    assert request.search is not None
    settings = request.search.alignment.search
    sources = QuerySources(files, settings.comp_bias_corr, settings.matrix)
    return lambda cache, failures: request.family.read_screen(sources, pairs, failures, background)


def predict_targets(request: PredictionRequest, inputs: Sequence[str], all_cached: bool) -> FindTargets:
    """Return a function that finds the targets of `foldcli predict`: alignments, features or jobs."""
    return partial(request.family.find_predict_targets, inputs, all_cached)


def run_predictions(
    request: PredictionRequest, find_targets: FindTargets, kept: KeptState | None = None
) -> int | None:
    """Find the targets, and predict them or print what would be done.

    If torchrun has started several processes, this is done by the first. The others only take part in its
    predictions, and return their exit codes.

    Args:
        request: the run.
        find_targets: returns names and targets.
        kept: what a session keeps; None in a command.
    """
    output, assignment = request.output, request.assignment
    if assignment is not None and assignment.rank > 0:
        from foldcli.pipeline.network.rank_server import serve_rank  # imports torch

        return None if request.dry_run else serve_rank(request.network, request.threads, assignment)
    if output.relaxation.num_models:
        check_relaxation(output.relaxation)
    if not request.dry_run:
        check_writable_folder(output.folder)
    failures = Failures(output.folder, output.shard)
    targets = find_targets(request.features.cache, failures)
    selected = output.shard.select(targets)
    if selected or request.dry_run:
        _predict(request, targets if request.dry_run else selected, len(selected), failures, kept)
        return None
    if assignment is not None:
        from model.parallel.session import decline  # imports torch

        decline(assignment)
    failures.finish()
    return None


def _predict(
    request: PredictionRequest,
    targets: Sequence[tuple[str, TargetInput]],
    num_selected: int,
    failures: Failures,
    kept: KeptState | None,
) -> None:
    """Choose the settings, start processes and imports, and run the stages or print the plan.

    Args:
        request: the run.
        targets: names and inputs; in a dry run those of all shards.
        num_selected: number of those of this shard.
        failures: the failures so far.
        kept: what a session keeps; None in a command.
    """
    families = request.family.needed_families(request.network, [target for _, target in targets])
    request = request.with_defaults(families)
    sources = request.family.sources(request.network, families)
    # names of models, which the records have, do not depend on hashes of parameters
    named = TargetIdentities(sources, [{"content": ""} for _ in sources], request.network.predict)
    has_work = not request.dry_run and plan.has_work(targets, named, request.output)
    processes = Processes.choose(
        request.network, request.assignment, num_selected, request.threads, has_work, request.dry_run
    )
    open_search = _start_search(request, processes, has_work, kept)
    networks = {} if kept is None else kept.networks
    startup = start(request.network, has_work and not networks, sources, processes, networks)
    with _open_predictor(request, startup, has_work) as predictor:
        # imports more while the GPU is warmed up
        templates = _open_templates(request, predictor)
        identities = _identities(predictor, templates)
        if request.dry_run:
            _print_plan(request, targets, predictor, identities, failures)
            return
        report = None if kept is None else kept.report
        settings = _run_settings(request, predictor, identities, templates, startup, open_search, report)
        from foldcli.pipeline.runs.run import run_targets  # imports torch

        make_writable_folder(request.output.folder)
        run_targets(targets, settings, failures, request.as_json)


def _start_search(
    request: PredictionRequest, processes: Processes, has_work: bool, kept: KeptState | None
) -> OpenSearch | None:
    """Start a process for the searches if they would delay predictions; return how to open the database."""
    search, network = request.search, request.network
    if search is None:
        return None
    if kept is not None:
        return partial(kept.open, search, network.device)
    predicts_here = not processes.in_workers and network.gpus_per_target == 1 and request.family.has_network
    process = search.start_process(network.device, predicts_here) if has_work else None
    return partial(search.open, network.device, process)


@contextmanager
def _open_predictor(request: PredictionRequest, startup: Startup, has_work: bool) -> Iterator["Predictor"]:
    """Yield the predictor; if this process predicts, its GPU is being warmed up."""
    # this imports torch, which `start` has just imported
    from foldcli.pipeline.network.ranks import open_predictor

    in_workers = startup.processes.in_workers
    runs_elsewhere = request.dry_run or in_workers
    options = request.network, startup, request.threads, request.assignment
    with open_predictor(*options, runs_elsewhere) as predictor:
        if has_work and not (in_workers or startup.networks):
            predictor.warm_up(predictor.sources[0])
        yield predictor


def _open_templates(request: PredictionRequest, predictor: "Predictor") -> TemplateStage | None:
    """Open the search for templates; return None without."""
    if request.templates is None:
        return None
    search = predictor.family.template_search(request.templates.search, predictor.sources[0])
    if search is None:
        return None
    return TemplateStage.open(replace(request.templates, search=search), cache_dir())


def _identities(predictor: "Predictor", templates: TemplateStage | None) -> TargetIdentities:
    """Check the parameters, and return the identities of targets, without the request for alignments."""
    return TargetIdentities(
        predictor.sources,
        check_parameters(predictor.sources),
        predictor.settings,
        templates=None if templates is None else templates.identity(),
    )


def _print_plan(
    request: PredictionRequest,
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
    request: PredictionRequest,
    predictor: "Predictor",
    identities: TargetIdentities,
    templates: TemplateStage | None,
    startup: Startup,
    open_search: OpenSearch | None,
    report: Report | None,
) -> "RunSettings":
    """Open the database, and return the settings and stages of a run."""
    from foldcli.pipeline.network.device_workers import worker_settings  # imports torch
    from foldcli.pipeline.runs.state import RunSettings  # imports torch

    network, stage, description = request.network, None, None
    if open_search is not None:
        stage, description = open_search()
        identities = replace(identities, request=stage.request)
    in_workers = startup.processes.in_workers
    return RunSettings(
        output=request.output,
        features=request.features,
        predictor=predictor,
        identities=identities,
        search=stage,
        templates=templates,
        database=description,
        workers=worker_settings(network, predictor, request.threads) if in_workers else (),
        devices_per_target=network.gpus_per_target,
        startup=startup,
        report=report,
    )
