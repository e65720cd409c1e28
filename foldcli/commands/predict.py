"""`foldcli predict`: alignments or cached features in, ranked structures out."""

from pathlib import Path
from typing import Any

import click

from foldcli import options, predict_options
from foldcli.layout import LayoutName
from foldcli.shard import Shard


@click.command("predict")
@click.argument("targets", nargs=-1, type=options.PathType(), required=True, metavar="TARGET...")
@options.params_option
@options.out_option
@predict_options.predict_options
@predict_options.layout_option
@options.device_option("the network runs")
@options.cache_option
@options.threads_option
@options.shard_option
@options.overwrite_option
@predict_options.dry_run_option
@options.logging_options
def command(
    targets: tuple[str, ...],
    out: Path,
    cache: Path | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    dry_run: bool,
    layout: LayoutName,
    **settings: Any,
) -> None:
    """Predict structures from alignments or cached features.

    TARGET is an alignment (A3M, Stockholm or aligned FASTA; a single sequence will do), an entry of a
    feature cache (.safetensors), or a folder of alignments. The outputs are those of `foldcli fold`, but for
    the search's.
    """
    from dataclasses import asdict

    from foldcli import colabfold_layout, done
    from foldcli.dry_run import Place, plan_predict
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
    from foldcli.summary import RunSummary
    from foldcli.targets import alignment_targets
    from msa.alignments import parse_alignment
    from msa.compression import read_bytes

    if not dry_run:
        make_writable_folder(out)
    failures = Failures(out, shard)
    named = alignment_targets(targets)
    selected = shard.select(named)
    if not selected and not dry_run:
        failures.finish()
        return
    predictor = prepare(settings, threads)
    parameters = check_parameters(predictor.sources)

    def identity_of(path: str) -> dict[str, Any]:
        # standard input can be read only once, and is never taken for a finished target's
        digest = None if path == "-" else file_sha256(Path(path))
        return {"input": digest, "parameters": parameters, "predict": asdict(predictor.settings)}

    if dry_run:
        plan_predict(named, identity_of, Place(out, layout, shard, overwrite), predictor, failures)
        return
    if layout == "colabfold":
        colabfold_layout.begin_run(out, predictor, len(selected), overwrite)

    def predict(name: str, path: str) -> None:
        identity = identity_of(path)
        digest = identity["input"]
        key = fingerprint(identity)
        target = TargetRun.begin(name, out, layout)
        if digest and not overwrite and done.is_done(target.folder, name, key):
            logger.info("%s: already done", name)
            return
        if overwrite or not digest:
            target.clear()
        if path.endswith(".safetensors"):
            features = entry_features(target, Path(path))
        else:
            content = read_bytes(path)
            alignment = parse_alignment(content, path)
            features = cached_features(target, [alignment], cache or cache_dir() / "features")
            if layout == "colabfold":
                colabfold_layout.keep_alignment(target.files, content, len(alignment.query))
        predict_target(target, features, predictor, key, identity)

    summary = RunSummary(out, layout, [name for name, _ in selected])
    failures.run(selected, predict)
    summary.tell(failures)
    failures.finish()
