"""`foldcli search`: search a target database with queries and write the hits."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import search as search_options
from foldcli.options.command import SEARCH_REPLACEMENTS, GroupedCommand, grouped

if TYPE_CHECKING:
    from foldcli.pipeline.search_stage import Searcher

_input_and_result_options = options.combine(
    click.option(
        "-o",
        "--out",
        required=True,
        type=options.PathType(),
        metavar="OUT",
        help="m8: a file; a3m, sto: a folder with one file per query. - is standard output.",
    ),
    click.option(
        "--format",
        "kind",
        type=click.Choice(["m8", "a3m", "sto"]),
        default="m8",
        show_default=True,
        help="Table of hits, A3M or Stockholm alignments.",
    ),
    click.option(
        "--format-output",
        metavar="NAME,NAME,...",
        show_default="MMseqs2's twelve",
        help="Columns of m8: any of MMseqs2's names that docs/search.md lists.",
    ),
    click.option(
        "--server",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Socket of `foldcli serve` to search with; then there is no DB, and every argument is a QUERY.",
    ),
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=options.PathType(),
        help="Search with profiles that --save-profile wrote, instead of or in addition to QUERY.",
    ),
    click.option(
        "--save-profile",
        type=options.PathType(),
        help="Save the last profiles. m8: a file; a3m, sto: a folder with one NAME.npz per query.",
    ),
    click.option(
        "--exact",
        is_flag=True,
        help="Find all exact occurrences of the queries, such as peptides of eight residues, instead of "
        "similar sequences. Without -e and --max-seqs, there are no limits.",
    ),
    click.option(
        "--partial",
        is_flag=True,
        help="Search one part of a split database (`createdb --split`): OUT is a file for "
        "`foldcli merge-hits`, which makes what --format names.",
    ),
    click.option(
        "--previous",
        multiple=True,
        type=options.PathType(),
        metavar="HITS",
        help="With --partial: a file of an earlier iteration; repeated for each part and iteration. Without "
        "it, the first iteration is searched.",
    ),
    options.overwrite_option,
)


@click.command("search", cls=GroupedCommand, replacements=SEARCH_REPLACEMENTS)
@click.argument("queries", nargs=-1, type=options.PathType(), metavar="[QUERY...] [DB]")
@grouped("Input and results", _input_and_result_options)
@grouped("Search", search_options.search_options)
@grouped("Rows of the alignment, for --format a3m and sto", search_options.alignment_options)
@grouped("Complexes, for --format a3m", search_options.pairing_options, options.cache_option)
@grouped("Device", options.device_option("the search"), options.threads_option)
@grouped("Run", options.shard_option, options.logging_options)
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
    exact: bool,
    partial: bool,
    previous: tuple[str, ...],
    cache: Path | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    device: str,
    **option_values: Any,
) -> None:
    """Search a target database with protein queries.

    QUERY is a FASTA file (each record is a query), an A3M or Stockholm alignment (searched with the profile
    of its rows), a ColabFold table `id,sequence`, an AlphaFold 3 JSON or Boltz YAML file of protein
    chains, profiles that --save-profile wrote, an MMseqs2 database of sequences or profiles, a folder of such
    files, or - for standard input; see docs/inputs.md. DB is a database from `foldcli createdb`, or a FASTA
    file or MMseqs2 database, converted once into $FOLDCLI_CACHE. With --server there is no DB, and the
    server decides on device and threads; everything else works the same.

    With --format m8, OUT is one table with the hits of all queries. Complexes (`A:B`, docs/complexes.md) are
    searched chain by chain: the table has each distinct chain as a query NAME_A, and --format a3m writes one
    alignment for each complex, with paired rows, as ColabFold does.

    With --format a3m or sto, OUT is a folder that gets NAME.a3m or NAME.sto for each query. Queries that were
    searched before with the same settings are skipped. One query's failure does not stop the others: the exit
    code is 5, and OUT/failures.jsonl lists the failures. Alignments have no duplicate rows, best hit first;
    --max-seq-id, --qid, --qsc, --cov and --diff remove further rows as HH-suite's hhfilter does. By default
    they are as deep as folding needs: three iterations, up to 10,000 hits, ColabFold's filter. --fast
    searches once.

    \b
    Examples:
      foldcli search proteins.fasta uniref50 -o hits.m8
      foldcli search proteins.fasta uniref50 -o alignments --format a3m --fast
    """
    from msa.gpu.opening import open_in_background
    from msa.gpu.process_state import without_collection

    if server is None and not exact:
        # the GPU opens while everything else is imported
        open_in_background(device)
    with without_collection():
        from foldcli.inputs.queries import QuerySources
        from foldcli.paths import default_feature_cache
        from foldcli.pipeline.search_run import SearchRun
        from foldcli.pipeline.settings import AlignmentSettings
        from msa.io.m8 import DEFAULT_COLUMNS, parse_columns
        from msa.search.settings import AlignmentFilter

    inputs, db = list(queries), None
    if server is not None:
        _refuse_local_options(context, inputs, save_profile)
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
    if exact:
        refused = {"--format a3m or sto": kind != "m8", "--server": server is not None, "--partial": partial}
        refused |= {"--profile": bool(profiles), "--save-profile": save_profile is not None}
        refused |= {"--num-iterations": option_values["num_iterations"] is not None}
        for option, is_given in refused.items():
            if is_given:
                raise click.UsageError(f"--exact cannot be combined with {option}.")
        option_values = _without_limits(option_values)
    settings = AlignmentSettings.from_options(option_values, threads, tables=kind == "m8")
    if kind == "m8" and settings.row_filter != AlignmentFilter():
        raise click.UsageError(
            "--max-seq-id, --qid, --qsc, --cov, --diff and --filter-min-enable are for --format a3m and sto: "
            "tables keep all hits."
        )
    sources = QuerySources(inputs, settings.search.comp_bias_corr, settings.search.matrix, profiles)
    if previous and not partial:
        raise click.UsageError("--previous is for --partial.")
    if partial:
        _check_partial(server, out, save_profile)
        # imported here, because they import the search engines
        from foldcli.pipeline.searcher import DatabaseSource
        from foldcli.pipeline.split_runs import PartSearchRun, ResultFormat

        part = DatabaseSource(str(db), device)
        result = ResultFormat(kind, tuple(columns))
        search = PartSearchRun(sources, settings, result, part.open_searcher, previous, shard, overwrite)
        search.to_file(Path(out))
        return
    open_searcher = _exact_opener(str(db)) if exact else _searcher_opener(server, str(db), device)
    cache = cache or default_feature_cache()
    run = SearchRun(sources, settings, open_searcher, shard, save_profile, overwrite, cache)
    if kind == "m8":
        run.to_table(out, columns)
    elif out == "-":
        run.to_stdout(kind)
    else:
        run.to_folder(Path(out), kind)


def _check_partial(server: Path | None, out: str, save_profile: str | None) -> None:
    """Refuse options that --partial does not support.

    Raises:
        click.UsageError: one of them is set.
    """
    if server is not None or save_profile is not None:
        raise click.UsageError("--partial cannot be combined with --server or --save-profile.")
    if out == "-":
        raise click.UsageError("--partial writes a file: name it with -o.")


def _without_limits(option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the options, with no limits on E-value and number of hits if none are given."""
    from msa.search.settings import MAX_SEQS

    limits = {"evalue": math.inf, "max_seqs": MAX_SEQS}
    return option_values | {name: limit for name, limit in limits.items() if option_values[name] is None}


def _exact_opener(db: str) -> "Callable[[], Searcher]":
    """Return the function that opens the database for an exact search."""

    def open_here() -> "Searcher":
        from foldcli.pipeline.searcher import DatabaseSource, ExactSearcher

        return ExactSearcher(DatabaseSource(db, "cpu").open())

    return open_here


def _searcher_opener(server: Path | None, db: str, device: str) -> "Callable[[], Searcher]":
    """Return the function that opens the database, or connects to the server that has it."""

    def connect() -> "Searcher":
        from foldcli.server.client import RemoteSearcher

        assert server is not None
        return RemoteSearcher(server)

    def open_here() -> "Searcher":
        # a client of a server needs no search engine
        from msa.gpu.process_state import without_collection

        with without_collection():
            from foldcli.pipeline.searcher import DatabaseSource

        return DatabaseSource(db, device).open_searcher()

    return open_here if server is None else connect


def _refuse_local_options(context: click.Context, inputs: list[str], save_profile: str | None) -> None:
    """Refuse options and arguments of local searches, which have no meaning with --server.

    Raises:
        click.UsageError: one of these options is set, or a database is among the queries.
    """
    from msa.database.manifest import MANIFEST

    for name in ("device", "threads"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} cannot be combined with --server: give it to `foldcli serve`.")
    if save_profile is not None:
        raise click.UsageError("--save-profile: the profiles stay in the server; search without --server.")
    for path in inputs:
        if (Path(path) / MANIFEST).is_file():
            raise click.UsageError(f"{path} is a database: with --server every argument is a query.")
