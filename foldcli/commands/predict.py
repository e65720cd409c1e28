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
    from foldcli.alignment_inputs import ALIGNMENT_SUFFIXES, ENTRY_SUFFIX, AlignmentTarget, alignment_targets
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
    from foldcli.runtime import prepare
    from foldcli.targets import FASTA_SUFFIXES

    make_writable_folder(out)
    failures = Failures(out, shard)
    found = alignment_targets(targets, (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX))
    selected = shard.select((target.name, target) for target in found)
    if not selected:
        failures.finish()
        return
    predictor = prepare(settings, threads)
    parameters = check_parameters(predictor.sources)

    def predict(name: str, given: AlignmentTarget) -> None:
        # standard input can be read only once, and is never taken for a finished target's
        content = None if "-" in given.files else [file_sha256(Path(path)) for path in given.files]
        identity = {"input": content, "parameters": parameters, "predict": asdict(predictor.settings)}
        key = fingerprint(identity)
        target = TargetRun.begin(name, out)
        if content and not overwrite and done.is_done(target.folder, name, key):
            logger.info("%s: already done", name)
            return
        if overwrite or not content:
            target.clear()
        if given.files[0].endswith(ENTRY_SUFFIX):
            features = entry_features(target, Path(given.files[0]))
        else:
            features = cached_features(target, given.read(), cache or cache_dir() / "features")
        predict_target(target, features, predictor, key, identity)

    failures.run(selected, predict)
    failures.finish()
