"""`foldcli predict`: alignments or cached features in, ranked structures out."""

from pathlib import Path
from typing import Any

import click

from foldcli import options
from foldcli.shard import Shard


@click.command("predict")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@options.params_option
@options.out_option
@options.predict_options
@options.device_option("the network runs")
@options.cache_option
@options.threads_option
@options.shard_option
@options.report_options
@options.overwrite_option
@options.logging_options
def command(
    targets: tuple[str, ...],
    out: Path,
    cache: Path | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Predict structures from alignments or cached features.

    TARGET is an alignment (A3M, Stockholm or aligned FASTA; a single sequence will do), an entry of a
    feature cache (.safetensors), or a folder of alignments. The outputs are those of `foldcli fold`, but for
    the search's.
    """
    from dataclasses import asdict

    from foldcli import done
    from foldcli.failures import Failures
    from foldcli.fingerprint import file_sha256, fingerprint
    from foldcli.logs import logger
    from foldcli.parameters import check_parameters
    from foldcli.paths import cache_dir, make_writable_folder
    from foldcli.pipeline import (
        TargetRun,
        cached_features,
        entry_features,
        predict_target,
    )
    from foldcli.report.make import ReportSettings, try_index
    from foldcli.runtime import prepare
    from foldcli.targets import alignment_targets
    from msa.alignments import read_alignment

    make_writable_folder(out)
    report = ReportSettings.of(settings)
    failures = Failures(out, shard)
    selected = shard.select(alignment_targets(targets))
    if not selected:
        failures.finish()
        return
    predictor = prepare(settings, threads)
    parameters = check_parameters(predictor.sources)

    def predict(name: str, path: str) -> None:
        # standard input can be read only once, and is never taken for a finished target's
        content = None if path == "-" else file_sha256(Path(path))
        identity = {"input": content, "parameters": parameters, "predict": asdict(predictor.settings)}
        key = fingerprint(identity)
        target = TargetRun.begin(name, out)
        if content and not overwrite and done.is_done(target.folder, name, key):
            logger.info("%s: already done", name)
            return
        if overwrite or not content:
            target.clear()
        if content:
            target.facts["alignment"] = str(Path(path).resolve())
        if path.endswith(".safetensors"):
            features = entry_features(target, Path(path))
        else:
            features = cached_features(target, [read_alignment(path)], cache or cache_dir() / "features")
        predict_target(target, features, predictor, key, identity, report)

    failures.run(selected, predict)
    try:
        failures.finish()
    finally:
        try_index(out, report)
