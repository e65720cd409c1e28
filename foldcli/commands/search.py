"""`foldcli search`: queries against a target database, hits out."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import search as search_options
from foldcli.pipeline.search_run import Search
from foldcli.version import VERSION

if TYPE_CHECKING:
    from msa.io.fasta import FastaRecord
    from msa.search.engine import ProfileCallback, QueryProfile
    from msa.search.hits import Hit

Outcome: TypeAlias = "tuple[FastaRecord, list[Hit] | Exception | None]"


@click.command("search")
@click.argument("queries", nargs=-1, type=options.PathType(), metavar="[QUERY...] [DB]")
@click.option(
    "-o",
    "--out",
    required=True,
    type=options.PathType(),
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
@click.option(
    "--server",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Ask the `foldcli serve` at this socket; there is no DB, and every argument is a QUERY.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=options.PathType(),
    help="Search with profiles that --save-profile wrote; in place of QUERY or beside it.",
)
@click.option(
    "--save-profile",
    type=options.PathType(),
    help="Keep what the last iteration searched with. m8: a file; a3m, sto: a folder, NAME.npz a query.",
)
@search_options.search_options
@search_options.alignment_options
@options.device_option("the search runs")
@options.threads_option
@options.shard_option
@options.overwrite_option
@options.logging_options
@click.pass_context
def command(
    context: click.Context,
    queries: tuple[str, ...],
    out: str,
    kind: str,
    format_output: str | None,
    server: Path | None,
    profiles: tuple[str, ...],
    save_profile: str | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    device: str,
    **settings: Any,
) -> None:
    """Search a target database with protein queries.

    QUERY is a FASTA file (each record is a query), an A3M or Stockholm alignment (searched with the profile
    of its rows), ColabFold's table `id,sequence`, AlphaFold 3's JSON or Boltz's YAML of a single protein
    chain, profiles that --save-profile wrote, an MMseqs2 database of sequences or profiles, a folder of such
    files, or - for standard input; see docs/inputs.md. DB is a database from `foldcli createdb`, or a FASTA
    file or MMseqs2 database, converted once into $FOLDCLI_CACHE. With --server there is no DB, and device
    and threads are the server's; all else is as without.

    \b
    With --format m8, OUT is one table of all queries' hits.
    With a3m or sto, OUT is a folder that gets NAME.a3m or NAME.sto for each query. Queries that were searched
    before with the same settings are skipped; one query's failure does not stop the others: exit code 5, and
    OUT/failures.jsonl names them. Alignments have each row once, best hit first; --max-seq-id, --qid, --qsc,
    --cov and --diff thin them out as HH-suite's hhfilter does.
    """
    from msa.io.m8 import DEFAULT_COLUMNS, parse_columns

    inputs, db = list(queries), None
    if server is not None:
        _check_nothing_is_the_servers(context, inputs, save_profile)
    elif not inputs or len(inputs) + len(profiles) < 2:
        raise click.UsageError("Missing argument 'DB': give one or more queries, then the database.")
    else:
        *inputs, db = queries
    if not inputs and not profiles:
        raise click.UsageError("Missing argument 'QUERY'.")
    if format_output is not None and kind != "m8":
        raise click.UsageError("--format-output is for --format m8 only.")
    try:
        columns = DEFAULT_COLUMNS if format_output is None else parse_columns(format_output)
    except ValueError as error:
        raise click.UsageError(f"--format-output: {error}") from error
    chosen, rows = (
        search_options.search_settings(settings, threads),
        search_options.alignment_filter(settings),
    )
    if rows.active and kind == "m8":
        raise click.UsageError(
            "--max-seq-id, --qid, --qsc, --cov and --diff are for --format a3m and sto: tables keep all hits."
        )
    run = Search(inputs, profiles, server or str(db), chosen, rows, device, shard, save_profile)
    if kind == "m8":
        _search_to_table(run, out, columns, overwrite)
    elif out == "-":
        _search_to_stdout(run, kind)
    else:
        _search_to_folder(run, Path(out), kind, overwrite)


def _check_nothing_is_the_servers(
    context: click.Context, inputs: list[str], save_profile: str | None
) -> None:
    """Refuse what only the server decides, or has.

    Raises:
        click.UsageError: an option, or a database among the queries.
    """
    from msa.database.manifest import MANIFEST

    for name in ("device", "threads"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{name} is the server's: give it to `foldcli serve`, not with --server."
            )
    if save_profile is not None:
        raise click.UsageError("--save-profile: the profiles stay in the server; search without --server.")
    for given in inputs:
        if (Path(given) / MANIFEST).is_file():
            raise click.UsageError(f"{given} is a database: with --server every argument is a query.")


def _search_to_table(run: Search, out: str, columns: tuple[str, ...], overwrite: bool) -> None:
    """All hits of all queries into one table, whole or not at all."""
    from msa.io.atomic import atomic_write
    from msa.io.m8 import write_m8

    for path in filter(None, (out, run.save_profile)):
        if path != "-" and not overwrite and Path(path).exists():
            raise click.UsageError(f"{path} exists; --overwrite replaces it.")
    queries = [(query.id, query) for query in run.queries()]
    searcher = run.open()
    with (
        _saving(run.save_profile, run.settings.matrix) as on_profile,
        contextlib.nullcontext(sys.stdout) if out == "-" else atomic_write(out) as stream,
    ):
        for query, hits in run.found(searcher, queries, on_profile):
            write_m8(stream, query, hits, columns)


def _search_to_stdout(run: Search, kind: str) -> None:
    """The alignment of the one query there is."""
    queries = run.queries()
    if len(queries) != 1:
        raise click.UsageError(f"-o - with --format {kind} takes one query, and there are {len(queries)}.")
    with _saving(run.save_profile, run.settings.matrix) as on_profile:
        for query, hits in run.found(run.open(), [(queries[0].id, queries[0])], on_profile):
            run.write_alignment(sys.stdout, kind, query, hits)


@contextlib.contextmanager
def _saving(path: str | Path | None, matrix: str) -> "Iterator[ProfileCallback | None]":
    """What takes the profiles that were searched with, for one file that is there whole or not at all."""
    if path is None:
        yield None
        return
    from msa.io.atomic import atomic_write
    from msa.io.saved_profiles import ProfileWriter

    with atomic_write(path, "wb") as stream, ProfileWriter(stream, matrix) as writer:
        yield writer.add


def _search_to_folder(run: Search, folder: Path, kind: str, overwrite: bool) -> None:
    """One alignment a query, and beside it NAME.KIND.json: what it was made from."""
    from foldcli.inputs.names import PROFILE_SUFFIXES
    from foldcli.inputs.queries import read_query_targets
    from foldcli.logs import logger
    from foldcli.paths import make_writable_folder
    from foldcli.pipeline.alignment_request import AlignmentRequest
    from foldcli.pipeline.failures import Failures
    from foldcli.pipeline.fingerprint import file_sha256
    from msa.io.atomic import atomic_write

    make_writable_folder(folder)
    profiles = None if run.save_profile is None else Path(run.save_profile)
    if profiles is not None:
        make_writable_folder(profiles)
    failures = Failures(folder, run.shard)
    named = run.shard.select(read_query_targets(run.sources, failures))
    searcher = run.open()
    request = AlignmentRequest(searcher.checksums, run.settings, run.rows)
    names = {id(query): name for name, query in named}

    def paths(name: str) -> tuple[Path, Path]:
        return folder / f"{name}.{kind}", folder / f"{name}.{kind}.json"

    def profile_path(name: str) -> Path | None:
        return None if profiles is None else profiles / f"{name}{PROFILE_SUFFIXES[0]}"

    def save_profile(query: "FastaRecord", profile: "QueryProfile", of_family: bool) -> None:
        with _saving(profile_path(names[id(query)]), run.settings.matrix) as add:
            if add is not None:
                add(query, profile, of_family)

    def finished(name: str, query: "FastaRecord") -> bool:
        result, record = paths(name)
        found, profile = _content_of(record), profile_path(name)
        if overwrite or not result.is_file() or found.get("fingerprint") != request.key(query):
            return False
        if profile is not None and (not profile.is_file() or found.get("profile") != file_sha256(profile)):
            return False
        logger.info("%s: already done", name)
        return True

    def write(name: str, outcome: "Outcome") -> None:
        query, hits = outcome
        if isinstance(hits, Exception):
            raise hits
        if hits is None:
            return
        result, record = paths(name)
        # an interrupted run must not leave the old record beside a new result
        record.unlink(missing_ok=True)
        with atomic_write(result) as stream:
            rows = run.write_alignment(stream, kind, query, hits)
        settings = request.named_settings()
        content = {
            "fingerprint": request.key(query),
            "hits": len(hits),
            "rows": rows,
            "foldcli": VERSION,
            **settings["search"],
            "alignment": settings["alignment"],
        }
        if (profile := profile_path(name)) is not None:
            content["profile"] = file_sha256(profile)
        with atomic_write(record) as stream:
            json.dump(content, stream, indent=1)
            stream.write("\n")

    on_profile = None if profiles is None else save_profile
    failures.run(_outcomes(named, lambda left: run.found(searcher, left, on_profile), finished), write)
    failures.finish()


def _outcomes(
    named: "Sequence[tuple[str, FastaRecord]]",
    found: "Callable[[Sequence[tuple[str, FastaRecord]]], Iterator[tuple[FastaRecord, list[Hit]]]]",
    finished: "Callable[[str, FastaRecord], bool]",
) -> "Iterator[tuple[str, Outcome]]":
    """What became of each query: hits, an error, or None where they are there already."""
    from foldcli.errors import ServerLost
    from msa.errors import InputError
    from msa.search.search import check_query

    left = []
    for name, query in named:
        try:
            check_query(query)
        except InputError as error:
            yield name, (query, error)
            continue
        if finished(name, query):
            yield name, (query, None)
        else:
            left.append((name, query))
    while left:
        begun = 0
        try:
            for query, hits in found(left):
                begun += 1
                yield left[begun - 1][0], (query, hits)
        except ServerLost:
            # none of those left can be searched with
            raise
        except Exception as error:
            # the search goes on behind the query that it broke off at
            name, query = left[begun]
            begun += 1
            yield name, (query, error)
        left = left[begun:]


def _content_of(record: Path) -> dict[str, Any]:
    """What a finished search says of itself; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(record.read_text())
        if isinstance(content, dict):
            return content
    return {}
