"""`foldcli fold`: search, cache-features and predict in one command."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import ranks as rank_options
from foldcli.options import search as search_options
from foldcli.options import templates as template_options
from foldcli.options.command import (
    PREDICTION_REPLACEMENTS,
    SEARCH_REPLACEMENTS,
    GroupedCommand,
    grouped,
)
from model.parallel.place import RankPlace

if TYPE_CHECKING:
    from foldcli.inputs.targets import FoldInput
    from foldcli.pipeline.failures import Failures
    from msa.search.settings import SearchSettings

FindTargets: TypeAlias = "Callable[[SearchSettings, Path, Failures], list[tuple[str, FoldInput]]]"


FOLD_OPTIONS = (
    grouped("Input and results", options.database_option, predict_options.result_options),
    grouped("Search", search_options.fold_search_options),
    grouped("Rows of the alignment", search_options.alignment_options),
    grouped("Complexes", search_options.pairing_options),
    grouped("Templates", template_options.template_options),
    grouped("Prediction", options.params_option, predict_options.prediction_options),
    grouped(
        "Device",
        options.device_option("the search and the network"),
        options.threads_option,
        predict_options.network_device_options,
        rank_options.rank_options,
    ),
    grouped("Relaxation", predict_options.relax_options),
    grouped("Run", predict_options.run_options),
)
FOLD_REPLACEMENTS = PREDICTION_REPLACEMENTS | SEARCH_REPLACEMENTS


def fold_options(function: options.Command) -> options.Command:
    """Add the options that `foldcli fold` and `foldcli screen` share."""
    for decorate in reversed(FOLD_OPTIONS):
        function = decorate(function)
    return function


@click.command("fold", cls=GroupedCommand, replacements=FOLD_REPLACEMENTS)
@click.argument("queries", nargs=-1, type=options.PathType(), required=True, metavar="QUERY...")
@fold_options
def command(queries: tuple[str, ...], **option_values: Any) -> int | None:
    """Predict structures from protein sequences: search, cache-features, predict.

    QUERY is a FASTA file (each record is a target), a ColabFold table, an AlphaFold 3 JSON or Boltz YAML
    file, an alignment, profiles or an MMseqs2 database (as for `search`), a folder of files, or - for
    standard input; see docs/inputs.md. It can also be the name of a target in the feature cache, which needs
    no search.

    Chains of a complex are joined by ":" in FASTA; AlphaFold-Multimer predicts it (docs/complexes.md).

    \b
    Each target gets a folder OUT/NAME (see docs/outputs.md) with
      NAME.a3m, NAME.m8                the alignment and the hits
      NAME_templates.tsv               templates, used and rejected ones
      NAME_unrelaxed_rank_*.pdb, .cif  structures, best first; B-factor: pLDDT
      NAME_relaxed_rank_*.pdb          relaxed structures, with --num-relax
      NAME_scores_rank_*.json          pLDDT, PAE, pTM, of complexes ipTM
      NAME.html                        the report, for a browser
      NAME_coverage, _plddt, _pae.png  plots
      NAME.done.json                   settings, versions, time, memory

    OUT/summary.tsv has one line per model, and OUT/index.html lists the targets. Finished targets are
    skipped, further models are added to them, and an interrupted run continues where it stopped. Results of
    other settings are replaced only with --overwrite. One target's failure does not stop the others: the exit
    code is 5, and OUT/failures.jsonl lists the failures.

    The search has three iterations; --fast searches once. NAME.m8 has all hits; NAME.a3m has no duplicate
    rows, and its options below remove further ones.

    --gpus-per-target N divides each prediction among N GPUs, as `predict` does.

    \b
    Examples:
      foldcli fold proteins.fasta --db uniref50 -o out
      foldcli fold proteins.fasta --db uniref50 -o out --num-models 1 --dry-run
    """
    from foldcli.inputs.targets import find_fold_targets

    def find_targets(
        search: "SearchSettings", cache: Path, failures: "Failures"
    ) -> "list[tuple[str, FoldInput]]":
        return find_fold_targets(queries, search.comp_bias_corr, search.matrix, cache, failures)

    return run_fold(find_targets, **option_values)


def run_fold(
    find_targets: FindTargets,
    *,
    db: str | None,
    threads: int,
    dry_run: bool,
    as_json: bool,
    gpus_per_target: int,
    **option_values: Any,
) -> int | None:
    """Run search, features and prediction for the targets of `fold` or `screen`.

    `find_targets` returns names and targets, given the settings of the search, the feature cache and the
    failures of the run. All other arguments are the values of FOLD_OPTIONS. Of several processes that
    torchrun has started, the first does this, and the others only predict; they return their exit code.
    """
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline.defaults import library_database, with_default_method
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.settings import (
        AlignmentSettings,
        FeatureSettings,
        NetworkOptions,
        OutputSettings,
        TemplateOptions,
    )
    from foldcli.pipeline.startup import needed_kinds, start

    alignment = AlignmentSettings.from_options(option_values, threads)
    place = RankPlace.from_environment()
    ranks = rank_options.number_of_ranks(gpus_per_target, place, option_values["params"])
    network = NetworkOptions.from_options(option_values | {"gpus_per_target": ranks})
    if place is not None and place.rank > 0:
        if dry_run:
            return None
        from foldcli.pipeline.ranks import serve_rank

        return serve_rank(network, threads, place)
    template_choice = TemplateOptions.from_options(option_values, threads)
    features = FeatureSettings.from_options(option_values)
    output = OutputSettings.from_options(option_values)
    if output.relaxation.num_models:
        from foldcli.pipeline.relaxation import check_relaxation

        check_relaxation(output.relaxation)

    if not dry_run:
        make_writable_folder(output.folder)
    failures = Failures(output.folder, output.shard)
    search_settings = alignment.search
    targets = find_targets(search_settings, features.cache, failures)
    selected = output.shard.select(targets)
    if not selected and not dry_run:
        if place is not None:
            from model.parallel.session import decline

            decline(place)
        output.shard.log_if_empty(len(targets))
        failures.finish()
        return None

    in_workers = rank_options.predicts_in_workers(len(network.devices), ranks, place)
    kinds = needed_kinds(network, targets if dry_run else selected)
    network = with_default_method(network, template_choice, kinds)
    if db is None:
        db = str(library_database())
    startup = start(network, preload=not dry_run, in_workers=in_workers, kinds=kinds)
    # these import torch, which `start` has just imported
    from foldcli.params.verify import check_parameters
    from foldcli.pipeline.device_workers import worker_settings
    from foldcli.pipeline.dry_run import database_heading
    from foldcli.pipeline.estimates import print_prediction_plan
    from foldcli.pipeline.identity import AlignmentRequest, TargetIdentities
    from foldcli.pipeline.ranks import open_predictor
    from foldcli.pipeline.run import RunSettings, run_targets, warm_up_early
    from foldcli.pipeline.search_stage import SearchStage
    from foldcli.pipeline.searcher import DatabaseSource
    from foldcli.pipeline.template_stage import TemplateStage

    templates = None if template_choice is None else TemplateStage.open(template_choice, cache_dir())
    template_identity = None if templates is None else templates.identity()
    source = DatabaseSource(db, network.device)
    with open_predictor(network, startup, threads, place, dry_run or in_workers) as predictor:
        if not (dry_run or in_workers):
            warm_up_early(predictor, selected, output)
        parameters = check_parameters(predictor.sources)
        if dry_run:
            database = source.open_existing()
            request = None if database is None else AlignmentRequest.to_database(database, alignment)
            identities = TargetIdentities(
                predictor.sources, parameters, predictor.settings, request, template_identity
            )
            headings = (database_heading(db, database),)
            print_prediction_plan(targets, identities, predictor, output, failures, headings, as_json)
            return None
        database = source.open()
        # the network needs the other half of the GPU's memory
        searcher = source.make_searcher(database, gpu_share=0.5)
        search = SearchStage(searcher, alignment, show_progress=False)
        identities = TargetIdentities(
            predictor.sources, parameters, predictor.settings, search.request, template_identity
        )
        description = f"{db} of {database.manifest.sequences:,} sequences"
        workers = worker_settings(network, predictor, threads) if in_workers else ()
        settings = RunSettings(
            output, features, predictor, identities, search, templates, description, workers, ranks
        )
        run_targets(selected, settings, failures, as_json)
    return None
