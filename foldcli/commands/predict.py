"""`foldcli predict`: alignments or cached features in, ranked structures out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.outputs.layout import LayoutName

if TYPE_CHECKING:
    from concurrent.futures import Future


@click.command("predict")
@click.argument("targets", nargs=-1, type=options.PathType(), metavar="TARGET...")
@options.params_option
@options.out_option
@predict_options.predict_options
@predict_options.layout_option
@options.device_option("the network runs")
@options.cache_option
@click.option("--all", "everything", is_flag=True, help="Predict all targets of the feature cache.")
@options.threads_option
@options.shard_option
@options.report_options
@options.overwrite_option
@options.no_verify_option
@options.dry_run_option
@options.logging_options
def command(
    targets: tuple[str, ...],
    out: Path,
    cache: Path | None,
    everything: bool,
    threads: int,
    shard: Shard,
    overwrite: bool,
    verify: bool,
    dry_run: bool,
    layout: LayoutName,
    **settings: Any,
) -> None:
    """Predict structures from alignments or cached features.

    TARGET is an alignment (A3M, Stockholm or aligned FASTA; a single sequence will do), a folder of them, a
    target's folder as AlphaFold and OpenFold write it, the name of a target in the feature cache, or an entry
    of one (.safetensors). The outputs are those of `foldcli fold`, but for the search's.

    While the network is at one target, the features of the next are loaded, its random ones drawn, and the
    results of the one before written.
    """
    from foldcli.inputs.cached_targets import find_predict_targets
    from foldcli.logs import logger
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline.dry_run import plan_run
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.identity import Identities
    from foldcli.pipeline.loading import TargetLoader
    from foldcli.pipeline.output_location import Place
    from foldcli.pipeline.prediction import predict_target
    from foldcli.pipeline.prediction_run import predict_all
    from foldcli.pipeline.prefetcher import Ahead
    from foldcli.pipeline.runtime import prepare
    from foldcli.report.make import ReportSettings

    if everything == bool(targets):
        problem = "TARGET... and --all exclude each other." if targets else "Missing argument 'TARGET...'."
        raise click.UsageError(problem)
    if not dry_run:
        make_writable_folder(out)
    place = Place(out, layout, shard, overwrite)
    failures = Failures(out, shard)
    report = ReportSettings.of(settings)
    cache = cache or cache_dir() / "features"
    named = find_predict_targets(targets, everything, cache, failures)
    selected = shard.select(named)
    if not selected and not dry_run:
        failures.finish()
        return
    predictor = prepare(settings, threads, soon=not dry_run)
    # imports torch, which `prepare` does in its own way
    from foldcli.params.verify import check_parameters

    identities = Identities(check_parameters(predictor.sources), predictor.settings)
    if dry_run:
        plan_run(named, identities.look, [], place, predictor, failures)
        return
    loader = TargetLoader(place, cache, predictor, identities, verify)
    ahead = Ahead(selected, loader.load_and_draw, predictor.background)

    def predict(name: str, _: object) -> "Future[None] | None":
        loaded = ahead.take()
        if loaded is None:
            logger.info("%s: already done", name)
            return None
        loaded.target.facts["waited_for_features_seconds"] = ahead.waited
        return predict_target(loaded, predictor, report, ahead.start)

    predict_all(selected, predict, predictor, place, failures, report)
