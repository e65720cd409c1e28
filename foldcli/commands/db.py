"""`foldcli db`: fetch databases, and list those that are known."""

from pathlib import Path

import click

from foldcli.databases.sources import read_sources
from foldcli.options import common as options
from foldcli.options.command import GroupedCommand
from foldcli.params.archive import expected_sha256
from foldcli.params.download import check_source

_sources_option = click.option(
    "--sources",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TOML",
    help="Table of further databases; see docs/how-to/own-database.md.",
)


@click.group("db")
def command() -> None:
    """Fetch databases of sequences or structures, and list those that are known."""


@command.command("list")
@_sources_option
@options.logging_options
def list_sources(sources: Path | None) -> None:
    """List the databases that can be fetched: name, description, address."""
    for source in read_sources(sources).values():
        click.echo(f"{source.name}\t{source.description}\t{source.url}")


@command.command("fetch", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@click.option(
    "-o",
    "--out",
    "output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DB",
    help="Database to create; an unfinished download is kept in DB.fetch.",
)
@_sources_option
@click.option(
    "--url", metavar="URL", show_default="that of the table", help="Address of the file on a mirror."
)
@options.download_options
@options.flag("--keep", help="Keep the downloaded file, in DB.fetch.")
@options.flag("--no-mask", help="As for createdb.")
@options.threads_option
@options.overwrite_option
@options.logging_options
def fetch(
    name: str,
    output: Path,
    sources: Path | None,
    url: str | None,
    local_file: Path | None,
    sha256: str | None,
    retries: int,
    keep: bool,
    no_mask: bool,
    threads: int,
    overwrite: bool,
) -> None:
    """Download a database, and build a target database or structure library from it.

    NAME is one of `foldcli db list`. Run the same command again to resume an interrupted download. A file is
    compared with its published checksum, if there is one. https_proxy, no_proxy and SSL_CERT_FILE set proxies
    and certificates.

    \b
      foldcli db fetch swissprot -o swissprot
      foldcli db fetch uniref50 -o uniref50 --from uniref50.fasta.gz
    """
    if url is not None and local_file is not None:
        raise click.UsageError("--url and --from exclude each other.")
    known = read_sources(sources)
    if name not in known:
        raise click.UsageError(f"no database {name!r}: known are {', '.join(known)}")
    if output.exists() and not overwrite:
        raise click.UsageError(f"{output} exists; --overwrite replaces it.")
    source = known[name]
    if source.kind == "structures" and no_mask:
        raise click.UsageError(f"--no-mask is for sequences, and {name} has structures.")
    url = url or source.url
    check_source(url, has_checksum=local_file is not None or bool(sha256 or source.sha256))
    from foldcli.databases import fetch as fetching

    checksum = expected_sha256(sha256, str(local_file or url)) if sha256 is not None else None
    build = fetching.BuildSettings(mask=not no_mask, threads=threads, overwrite=overwrite)
    fetching.fetch_and_describe(
        fetching.DatabaseFetch(source, output, url, local_file, checksum, retries, keep, build)
    )
