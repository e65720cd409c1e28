"""`foldcli cache-features`: alignments in, entries of the feature cache out."""

from pathlib import Path

import click

from foldcli import options
from foldcli.shard import Shard


@click.command("cache-features")
@click.argument("alignments", nargs=-1, required=True, metavar="MSA...")
@click.option(
    "-c",
    "--cache",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the feature cache; made when absent.",
)
@options.shard_option
@options.overwrite_option
@options.logging_options
def command(alignments: tuple[str, ...], cache: Path, shard: Shard, overwrite: bool) -> None:
    """Turn alignments into cached model features.

    MSA is an alignment (A3M, Stockholm or aligned FASTA, compressed or not; the first sequence is the query),
    a folder of them, or - for standard input. Entries are named by content: what is there already is checked
    and left alone. One target's failure does not stop the others: exit code 5, and CACHE/failures.jsonl names
    them.
    """
    from features.temporaries import remove_abandoned
    from foldcli.failures import Failures
    from foldcli.feature_step import load_or_make
    from foldcli.logs import logger
    from foldcli.paths import make_writable_folder
    from foldcli.progress import bar
    from foldcli.targets import alignment_targets
    from msa.alignments import read_alignment

    make_writable_folder(cache)
    remove_abandoned(cache)
    failures = Failures(cache, shard)
    selected = shard.select(alignment_targets(alignments))
    hits: list[bool] = []

    def cache_one(name: str, path: str) -> None:
        features, hit = load_or_make(name, [read_alignment(path)], cache, overwrite)
        hits.append(hit)
        rows, residues = features["msa"].shape
        state = "already cached" if hit else "cached"
        logger.info("%s: %s, %d residues, %d rows", name, state, residues, rows)

    with bar("caching features", "targets") as progress:
        for done, target in enumerate(selected, start=1):
            failures.run([target], cache_one)
            progress(done, len(selected))
    made = len(hits) - sum(hits)
    logger.info("%d cached, %d already there, %d failed", made, sum(hits), len(selected) - len(hits))
    failures.finish()
