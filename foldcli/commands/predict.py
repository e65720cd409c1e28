"""`foldcli predict`: alignments or cached features in, ranked structures out."""

from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import ranks as rank_options
from foldcli.options import templates as template_options
from foldcli.options.command import (
    PAIRING_REPLACEMENTS,
    PREDICTION_REPLACEMENTS,
    GroupedCommand,
    grouped,
)
from model.parallel.place import RankPlace


@click.command("predict", cls=GroupedCommand, replacements=PREDICTION_REPLACEMENTS | PAIRING_REPLACEMENTS)
@click.argument("targets", nargs=-1, type=options.PathType(), metavar="TARGET...")
@grouped(
    "Input and results",
    click.option("--all", "all_cached", is_flag=True, help="Predict all targets of the feature cache."),
    predict_options.result_options,
)
@grouped("Templates", template_options.template_options)
@grouped("Prediction", options.params_option, predict_options.prediction_options)
@grouped(
    "Device",
    options.device_option("the network"),
    options.threads_option,
    predict_options.network_device_options,
    rank_options.rank_options,
)
@grouped("Relaxation", predict_options.relax_options)
@grouped("Run", predict_options.run_options)
def command(
    targets: tuple[str, ...],
    all_cached: bool,
    threads: int,
    dry_run: bool,
    as_json: bool,
    gpus_per_target: int,
    **option_values: Any,
) -> int | None:
    """Predict structures from alignments or cached features.

    TARGET is an alignment (A3M, Stockholm or aligned FASTA; a single sequence is enough; the A3M of a
    complex), a folder of alignments, a target folder as AlphaFold and OpenFold write it, the name of a target
    in the feature cache, or a file of the cache (.safetensors). The outputs are those of `foldcli fold`,
    without those of the search.

    While the network works on one target, the features of the next targets are loaded and sampled, and the
    results of earlier targets are written.

    --gpus-per-target N divides each prediction among N GPUs; so does
    torchrun --nproc-per-node N -m foldcli predict ..., on one or several hosts.

    \b
    Examples:
      foldcli predict alignments/*.a3m -o out
      foldcli predict --all --num-models 2 --stop-at-score 90 -o out
    """
    from foldcli.inputs.targets import find_predict_targets
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline.defaults import with_default_method
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.settings import (
        FeatureSettings,
        NetworkOptions,
        OutputSettings,
        TemplateOptions,
    )
    from foldcli.pipeline.startup import needed_kinds, start

    if all_cached == bool(targets):
        problem = (
            "TARGET... and --all are mutually exclusive." if targets else "Missing argument 'TARGET...'."
        )
        raise click.UsageError(problem)
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
    named = find_predict_targets(targets, all_cached, features.cache, failures)
    selected = output.shard.select(named)
    if not selected and not dry_run:
        if place is not None:
            from model.parallel.session import decline

            decline(place)
        output.shard.log_if_empty(len(named))
        failures.finish()
        return None

    in_workers = rank_options.predicts_in_workers(len(network.devices), ranks, place)
    kinds = needed_kinds(network, named if dry_run else selected)
    network = with_default_method(network, template_choice, kinds)
    startup = start(network, preload=not dry_run, in_workers=in_workers, kinds=kinds)
    # these import torch, which `start` has just imported
    from foldcli.params.verify import check_parameters
    from foldcli.pipeline.device_workers import worker_settings
    from foldcli.pipeline.estimates import print_prediction_plan
    from foldcli.pipeline.identity import TargetIdentities
    from foldcli.pipeline.ranks import open_predictor
    from foldcli.pipeline.run import RunSettings, run_targets, warm_up_early
    from foldcli.pipeline.template_stage import TemplateStage

    templates = None if template_choice is None else TemplateStage.open(template_choice, cache_dir())
    template_identity = None if templates is None else templates.identity()
    with open_predictor(network, startup, threads, place, dry_run or in_workers) as predictor:
        if not (dry_run or in_workers):
            warm_up_early(predictor, selected, output)
        identities = TargetIdentities(
            predictor.sources,
            check_parameters(predictor.sources),
            predictor.settings,
            templates=template_identity,
        )
        if dry_run:
            print_prediction_plan(named, identities, predictor, output, failures, as_json=as_json)
            return None
        workers = worker_settings(network, predictor, threads) if in_workers else ()
        settings = RunSettings(
            output, features, predictor, identities,
            templates=templates, workers=workers, devices_per_target=ranks,
        )  # fmt: skip
        run_targets(selected, settings, failures, as_json)
    return None
