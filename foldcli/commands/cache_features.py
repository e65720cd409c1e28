"""`foldcli cache-features`: alignments or sequences in, entries of the feature cache out."""

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
    help="Folder of the feature cache; made when absent.",
)
@click.option(
    "--db",
    help="Target database for the sequences among the inputs, as for `fold`; alignments need none.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=options.available_cores,
    show_default="the cores this process may use",
    help="Processes that make features, each one target at a time.",
)
@search_options.search_options_beside_cache
@search_options.alignment_options
@options.device_option("the search runs")
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
    **settings: Any,
) -> None:
    """Turn alignments into cached model features.

    \b
    INPUT is one of these, compressed or not:
      an alignment              A3M, Stockholm or aligned FASTA; its first sequence is the query
      a FASTA file              sequences that are searched first, with --db; each is a target
      a folder                  of such files, or of folders as the next
      a target's folder         uniref90_hits, bfd_*_hits and mgnify_hits (.a3m or .sto), as AlphaFold and
                                OpenFold write them, joined in this order
      -                         standard input, an alignment or FASTA

    What begins like FASTA is an alignment if its name ends in .a3m or .afa, or if it has several records
    and there are gaps or insertions in them; a single sequence in any other file is a query.

    Entries are named by content: what is there already is checked and left alone. One target's failure does
    not stop the others: exit code 5, and CACHE/failures.jsonl names them. The alignments of searches are
    kept in CACHE/alignments.
    """
    from features.temporaries import remove_abandoned
    from foldcli.paths import make_writable_folder
    from foldcli.pipeline.cache_plan import plan_cache
    from foldcli.pipeline.cache_run import CacheRun
    from foldcli.pipeline.cache_run import read_inputs as read
    from foldcli.pipeline.failures import Failures

    chosen = search_options.search_settings(settings, threads)
    rows = search_options.alignment_filter(settings)
    failures = Failures(cache, shard)
    run = CacheRun(cache, workers, overwrite, verify, db, chosen, rows, settings["device"])
    if dry_run:
        plan_cache(read(inputs, failures, searched=db is not None), run, shard, failures)
        return
    make_writable_folder(cache)
    remove_abandoned(cache)
    run.run(shard.select(read(inputs, failures, searched=db is not None)), failures)
    failures.finish()
