"""`foldcli cache-features`: compute features of alignments or sequences and store them in a feature cache."""

from pathlib import Path
from typing import Any

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import search as search_options


@click.command("cache-features")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-c",
    "--cache",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the feature cache; created if it does not exist.",
)
@click.option(
    "--db",
    help="Target database for input sequences, as for `fold`; alignments need none.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=options.available_cores,
    show_default="the cores this process may use",
    help="Processes that compute features, each for one target at a time.",
)
@search_options.search_options_without_c
@search_options.alignment_options
@options.device_option("the search")
@options.threads_option
@options.shard_option
@options.overwrite_option
@options.dry_run_option
@options.no_verify_option
@options.logging_options
def command(
    inputs: tuple[str, ...],
    cache: Path,
    db: str | None,
    workers: int,
    threads: int,
    shard: Shard,
    overwrite: bool,
    dry_run: bool,
    verify: bool,
    device: str,
    **option_values: Any,
) -> None:
    """Turn alignments into cached model features.

    \b
    INPUT is one of these, compressed or not:
      an alignment              A3M, Stockholm or aligned FASTA; its first sequence is the query
      a FASTA file              sequences that are searched first, with --db; each is a target
      a folder                  of such files, or of target folders (see the next line)
      a target folder           uniref90_hits, bfd_*_hits and mgnify_hits (.a3m or .sto), as AlphaFold and
                                OpenFold write them, joined in this order
      -                         standard input, an alignment or FASTA

    A file that begins like FASTA is an alignment if its name ends in .a3m or .afa, or if it has several
    records with gaps or insertions; a single sequence in any other file is a query.

    Entries are named by content; existing ones are checked and kept. One target's failure does not stop the
    others: the exit code is 5, and CACHE/failures.jsonl lists the failures. The alignments of searches are
    kept in CACHE/alignments.
    """
    from features.cleanup import remove_abandoned
    from foldcli.inputs.targets import find_feature_targets
    from foldcli.paths import make_writable_folder
    from foldcli.pipeline.cache_run import CacheRun
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.settings import AlignmentSettings, FeatureSettings

    database = None
    if db is not None:
        # imports numba, which alignments do not need
        from foldcli.pipeline.searcher import DatabaseSource

        database = DatabaseSource(db, device)
    alignment = AlignmentSettings.from_options(option_values, threads)
    run = CacheRun(FeatureSettings(cache, overwrite, verify), alignment, database, workers)
    failures = Failures(cache, shard)
    if dry_run:
        run.print_plan(find_feature_targets(inputs, db is not None, failures), shard, failures)
        return
    make_writable_folder(cache)
    remove_abandoned(cache)
    run.run(shard.select(find_feature_targets(inputs, db is not None, failures)), failures)
    failures.finish()
