"""`foldcli merge-hits`: merge the hits of a split database's parts."""

import click

from foldcli.options import common as options
from foldcli.options import types
from foldcli.options.command import GroupedCommand


@click.command("merge-hits", cls=GroupedCommand)
@click.argument("parts", nargs=-1, required=True, type=types.PathType(), metavar="HITS...")
@options.output_option("m8: a file; a3m, sto: a folder with one file per query; - is stdout.")
@options.threads_option
@options.overwrite_option
@options.logging_options
def command(parts: tuple[str, ...], out: str, threads: int, overwrite: bool) -> None:
    """Merge the hits of searches of all parts of a split database.

    HITS are the files that `foldcli search --partial` wrote: one for each part of a database from
    `foldcli createdb --split`, and for each iteration. Their order does not matter. OUT equals, byte for
    byte, the result of the same search of the whole database: a table, or a folder of alignments, depending
    on the --format of the searches.

    \b
    Examples:
      foldcli createdb uniref50.fasta.gz --split 2 -o uniref50
      foldcli search proteins.fasta uniref50/1-of-2 --partial -o hits.1
      foldcli search proteins.fasta uniref50/2-of-2 --partial -o hits.2
      foldcli merge-hits hits.1 hits.2 -o hits.m8
    """
    from foldcli.search_runs.start import merge_hits

    merge_hits(parts, out, threads, overwrite)
