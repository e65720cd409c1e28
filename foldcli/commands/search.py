"""`foldcli search`: queries against a target database, hits out."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from foldcli import options
from foldcli.shard import Shard
from foldcli.version import VERSION

if TYPE_CHECKING:
    from msa.database import TargetDatabase
    from msa.fasta import FastaRecord
    from msa.hits import Hit
    from msa.search import SearchSettings


@click.command("search")
@click.argument("queries", nargs=-1, required=True, metavar="QUERY... DB")
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="OUT",
    help="m8: a file; a3m, sto: a folder, one file a query. - is standard output.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["m8", "a3m", "sto"]),
    default="m8",
    show_default=True,
    help="Table of hits, A3M or Stockholm alignments.",
)
@click.option(
    "--format-output",
    metavar="NAME,NAME,...",
    show_default="MMseqs2's twelve",
    help="Columns of m8: any of MMseqs2's names that docs/search.md lists.",
)
@options.search_options
@options.threads_option
@options.shard_option
@options.overwrite_option
@options.logging_options
def command(
    queries: tuple[str, ...],
    out: str,
    kind: str,
    format_output: str | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Search a target database with protein queries.

    QUERY is a FASTA file (each record is a query), a folder of them, or - for standard input. DB is a
    database from `foldcli createdb`, or a FASTA file, built once into $FOLDCLI_CACHE.

    \b
    With --format m8, OUT is one table of all queries' hits.
    With a3m or sto, OUT is a folder that gets NAME.a3m or NAME.sto for each query. Queries that were searched
    before with the same settings are skipped; one query's failure does not stop the others: exit code 5, and
    OUT/failures.jsonl names them.
    """
    from msa.formats.m8 import DEFAULT_COLUMNS, parse_columns

    if len(queries) < 2:
        raise click.UsageError("Missing argument 'DB': give one or more queries, then the database.")
    *inputs, db = queries
    if format_output is not None and kind != "m8":
        raise click.UsageError("--format-output is for --format m8 only.")
    try:
        columns = DEFAULT_COLUMNS if format_output is None else parse_columns(format_output)
    except ValueError as error:
        raise click.UsageError(f"--format-output: {error}") from error
    chosen = options.search_settings(settings, threads)
    if kind == "m8":
        _search_to_table(inputs, db, chosen, shard, out, columns, overwrite)
    elif out == "-":
        _search_to_stdout(inputs, db, chosen, shard, kind)
    else:
        _search_to_folder(inputs, db, chosen, shard, Path(out), kind, overwrite)


def _search_to_table(
    inputs: list[str],
    db: str,
    settings: "SearchSettings",
    shard: Shard,
    out: str,
    columns: tuple[str, ...],
    overwrite: bool,
) -> None:
    """All hits of all queries into one table, whole or not at all."""
    from msa.atomic import atomic_write
    from msa.formats.m8 import write_m8

    if out != "-" and not overwrite and Path(out).exists():
        raise click.UsageError(f"{out} exists; --overwrite replaces it.")
    queries = _read_strictly(inputs, shard)
    database = _open(db)
    with contextlib.nullcontext(sys.stdout) if out == "-" else atomic_write(out) as stream:
        for query in queries:
            write_m8(stream, query, _search(query.id, query, database, settings), columns)


def _search_to_stdout(
    inputs: list[str], db: str, settings: "SearchSettings", shard: Shard, kind: str
) -> None:
    """The alignment of the one query there is."""
    queries = _read_strictly(inputs, shard)
    if len(queries) != 1:
        raise click.UsageError(f"-o - with --format {kind} takes one query, and there are {len(queries)}.")
    hits = _search(queries[0].id, queries[0], _open(db), settings)
    _writer(kind)(sys.stdout, queries[0], hits)


def _search_to_folder(
    inputs: list[str],
    db: str,
    settings: "SearchSettings",
    shard: Shard,
    folder: Path,
    kind: str,
    overwrite: bool,
) -> None:
    """One alignment a query, and beside it NAME.KIND.json: what it was made from."""
    from foldcli.failures import Failures
    from foldcli.fingerprint import fingerprint
    from foldcli.logs import logger
    from foldcli.paths import make_writable_folder
    from foldcli.pipeline import SearchStep
    from foldcli.targets import read_queries
    from msa.atomic import atomic_write

    make_writable_folder(folder)
    failures = Failures(folder, shard)
    named = read_queries(inputs, failures)
    database = _open(db)
    step = SearchStep(database, settings)

    def work(name: str, query: "FastaRecord") -> None:
        result, record = folder / f"{name}.{kind}", folder / f"{name}.{kind}.json"
        key = fingerprint(step.identity(query))
        if not overwrite and result.is_file() and _fingerprint_in(record) == key:
            logger.info("%s: already done", name)
            return
        # an interrupted run must not leave the old record beside a new result
        record.unlink(missing_ok=True)
        hits = _search(name, query, database, settings)
        with atomic_write(result) as stream:
            _writer(kind)(stream, query, hits)
        content = {"fingerprint": key, "hits": len(hits), "foldcli": VERSION, **asdict(settings)}
        with atomic_write(record) as stream:
            json.dump(content, stream, indent=1)
            stream.write("\n")

    failures.run(shard.select(named), work)
    failures.finish()


def _read_strictly(inputs: list[str], shard: Shard) -> "list[FastaRecord]":
    """The shard's queries in the order of the input; the first that cannot be searched with is an error."""
    from foldcli.targets import FASTA_SUFFIXES, files_in
    from msa.fasta import read_fasta
    from msa.search import check_query

    records = [record for path in files_in(inputs, FASTA_SUFFIXES) for record in read_fasta(path)]
    for record in records:
        check_query(record)
    kept = shard.select((record.id, place) for place, record in enumerate(records))
    return [records[place] for place in sorted(place for _, place in kept)]


def _open(db: str) -> "TargetDatabase":
    from foldcli.paths import cache_dir
    from foldcli.progress import bar
    from msa.build import database_from

    with bar("building the database", "B") as progress:
        return database_from(Path(db), cache_dir(), progress)


def _search(
    name: str, query: "FastaRecord", database: "TargetDatabase", settings: "SearchSettings"
) -> "list[Hit]":
    from foldcli.logs import logger
    from foldcli.progress import bar
    from msa.search import search

    with bar(f"{name}: search", "targets") as progress:
        hits = search(query, database, settings, progress)
    logger.info("%s: %d hits", name, len(hits))
    return hits


def _writer(kind: str) -> "Callable[[IO[str], FastaRecord, Sequence[Hit]], None]":
    from msa.formats.a3m import write_a3m
    from msa.formats.stockholm import write_stockholm

    return {"a3m": write_a3m, "sto": write_stockholm}[kind]


def _fingerprint_in(record: Path) -> str | None:
    """What a finished search says it was made from; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(record.read_text())
        return str(content["fingerprint"]) if isinstance(content, dict) and "fingerprint" in content else None
    return None
