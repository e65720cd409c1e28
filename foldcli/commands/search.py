"""`foldcli search`: search a target database with queries and write the hits."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from foldcli.inputs.shard import Shard
from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import search as search_options
from foldcli.options.command import SEARCH_REPLACEMENTS, GroupedCommand, grouped
from foldcli.options.templates import LibraryType

if TYPE_CHECKING:
    from foldcli.inputs.queries import QueryReaders, QuerySources
    from foldcli.pipeline.prepare.template_stage import TemplateStage
    from foldcli.pipeline.search.stage import Searcher
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from foldcli.search_runs.split import PartSearchRun
    from msa.gpu.worker.process_start import GpuProcess

# the keys of foldcli.exports.run.FORMATS
_JOB_FORMATS = ("af3", "boltz", "openfold3", "protenix", "chai")
# those with a place for alignments of RNA
_RNA_FORMATS = ("af3", "openfold3", "protenix")

_input_and_result_options = options.combine(
    click.option(
        "-o",
        "--out",
        required=True,
        type=options.PathType(),
        metavar="OUT",
        help="m8: a file; otherwise a folder with one file per query or job. - is standard output.",
    ),
    click.option(
        "--format",
        "kind",
        type=click.Choice(["m8", "a3m", "sto", *_JOB_FORMATS]),
        default="m8",
        show_default=True,
        help="Table of hits, A3M or Stockholm alignments; or jobs of AlphaFold 3, Boltz, OpenFold3, Protenix "
        "or Chai, which get alignments.",
    ),
    click.option(
        "--db",
        "databases",
        type=options.PathType(),
        multiple=True,
        callback=options.distinct_databases,
        metavar="DB",
        help="Target database; all arguments are then queries. Repeat the option to search further databases "
        "with the profiles of the first.",
    ),
    options.molecule_option,
    options.rna_db_option,
    click.option(
        "--msa-files",
        is_flag=True,
        help="af3: write the alignments to files that the job names, not into the job.",
    ),
    click.option(
        "--templates",
        type=LibraryType(exists=True, path_type=Path),
        is_flag=False,
        flag_value="",
        metavar="[LIBRARY]",
        help="af3: also search this structure library, or without LIBRARY the one that comes with foldcli, "
        "and write templates into the job; a chain that has templates keeps them.",
    ),
    click.option(
        "--format-output",
        metavar="NAME,NAME,...",
        show_default="MMseqs2's twelve",
        help="Columns of m8, by MMseqs2's names; see docs/search.md.",
    ),
    click.option(
        "--server",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Let the `foldcli serve` that listens on this socket search; all arguments are then queries.",
    ),
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=options.PathType(),
        help="Search with the profiles in a file from --save-profile, instead of or in addition to QUERY.",
    ),
    click.option(
        "--save-profile",
        type=options.PathType(),
        help="Save the last profiles. m8: a file; a3m, sto: a folder with one NAME.npz per query.",
    ),
    click.option(
        "--exact",
        is_flag=True,
        help="Find all exact occurrences of the queries, for example of peptides, instead of similar "
        "sequences; all are listed unless -e or --max-seqs is given.",
    ),
    click.option(
        "--partial",
        is_flag=True,
        help="Search one part of a split database (`createdb --split`). OUT is a file from which, together "
        "with those of the other parts, `foldcli merge-hits` makes the result in --format.",
    ),
    click.option(
        "--previous",
        multiple=True,
        type=options.PathType(),
        metavar="HITS",
        help="With --partial: OUT of an earlier iteration; repeat the option for each part and iteration. "
        "Without it, the first iteration is run.",
    ),
    options.overwrite_option,
)


@click.command("search", cls=GroupedCommand, replacements=SEARCH_REPLACEMENTS)
@click.argument("queries", nargs=-1, type=options.PathType(), metavar="[QUERY...] [DB]")
@grouped("Input and results", _input_and_result_options)
@grouped("Search", search_options.search_options)
@grouped("Rows of the alignment, for all formats but m8", search_options.alignment_options)
@grouped(
    "Complexes, for --format a3m and jobs",
    search_options.pairing_options,
    options.cache_option,
    predict_options.jobs_option,
)
@grouped("Device", options.device_option("the search"), options.threads_option)
@grouped("Run", options.shard_option, options.logging_options)
@click.pass_context
def command(
    context: click.Context,
    queries: tuple[str, ...],
    out: str,
    kind: str,
    databases: tuple[str, ...],
    molecule: Literal["protein", "rna"],
    rna_db: str | None,
    msa_files: bool,
    templates: Path | None,
    format_output: str | None,
    server: Path | None,
    profiles: tuple[str, ...],
    save_profile: str | None,
    exact: bool,
    partial: bool,
    previous: tuple[str, ...],
    cache: Path | None,
    params: str | None,
    threads: int,
    shard: Shard,
    overwrite: bool,
    device: str,
    **option_values: Any,
) -> None:
    """Search a target database with protein queries, or with --molecule rna with RNA.

    QUERY is a FASTA file (each record is a query), an A3M or Stockholm alignment (searched with the profile
    of its rows), a ColabFold table `id,sequence`, an AlphaFold 3 JSON or Boltz YAML file of protein
    chains, profiles that --save-profile wrote, an MMseqs2 database of sequences or profiles, a folder of such
    files, or - for standard input; see docs/inputs.md. DB is a database from `foldcli createdb`, or a FASTA
    file or MMseqs2 database, converted once into $FOLDCLI_CACHE. With --server there is no DB, and the
    server decides on device and threads; everything else works the same.

    With --format m8, OUT is one table with the hits of all queries. Complexes (`A:B`, docs/complexes.md) are
    searched chain by chain: in the table, each distinct chain is a query such as NAME_A, and --format a3m
    writes one alignment for each complex, with paired rows, as ColabFold does.

    With --format a3m or sto, OUT is a folder with NAME.a3m or NAME.sto for each query. Queries that were
    searched before with the same settings are skipped. One query's failure does not stop the others: the exit
    code is 5, and OUT/failures.jsonl lists the failures. Rows are in the order of the hits, without
    duplicates; --max-seq-id, --qid, --qsc, --cov and --diff remove further ones as HH-suite's hhfilter does.
    The defaults suit structure prediction: three iterations, up to 10,000 hits, ColabFold's filter. --fast
    searches once.

    With --format a3m --params openfold3, QUERY are jobs of molecules, as for `fold`. Their proteins are
    searched as complexes are, and `fold` and `cache-features` find the alignments in the feature cache.

    With the formats of other programs, QUERY is a job file of that program, and OUT a folder with the same
    job and alignments of its proteins; see docs/search.md.

    \b
    Examples:
      foldcli search proteins.fasta uniref50 -o hits.m8
      foldcli search proteins.fasta uniref50 -o alignments --format a3m --fast
      foldcli search job.json uniref50 -o out --format a3m --params openfold3
      foldcli search jobs/ uniref50 -o filled --format boltz
    """
    from msa.gpu.device.process_state import without_collection

    inputs, db = _split_arguments(context, queries, databases[:1], server, profiles, save_profile)
    started, further = None, databases[1:]
    if server is None and not exact and not further:
        from foldcli.pipeline.search.gpu_opening import open_gpu_ahead  # while everything else is imported

        started = open_gpu_ahead(db, device, [*inputs, *profiles])
    with without_collection():
        from foldcli.inputs.queries import QuerySources
        from foldcli.paths import default_feature_cache
        from foldcli.search_runs.results import write_results
        from foldcli.search_runs.settings import SearchRun

    columns = _table_columns(kind, format_output)
    if exact:
        option_values = _exact_options(context.params, option_values)
    if molecule == "rna":
        option_values = _rna_options(context, option_values)
    settings = _alignment_settings(kind, option_values, threads)
    sources = QuerySources(inputs, settings.search.comp_bias_corr, settings.search.matrix, profiles)
    _check_partial(partial, previous, server, out, save_profile)
    _check_jobs(context)
    if params is not None:
        _check_molecules(params, kind, profiles, partial)
    if further and (partial or exact):
        raise click.UsageError(f"--{'partial' if partial else 'exact'} takes one database.")
    if partial:
        run = _part_run(
            db=db,
            device=device,
            started=started,
            sources=sources,
            settings=settings,
            kind=kind,
            columns=columns,
            previous=previous,
            shard=shard,
            overwrite=overwrite,
        )
        run.to_file(Path(out))
        return
    readers: QueryReaders = sources
    if params is not None:
        from foldcli.inputs.molecules.searches import JobSources  # imports the dictionary of components

        readers = JobSources(inputs)
    open_searcher = (
        _exact_opener(db) if exact else _searcher_opener(server, db, device, further, started, molecule)
    )
    folder = cache or default_feature_cache()
    search = SearchRun(readers, settings, open_searcher, shard, save_profile, overwrite, folder)
    if kind in _JOB_FORMATS:
        from foldcli.exports.run import ExportRun, export_jobs

        has_templates = "templates" in _given(context)
        find_templates = template_stage(templates, threads) if has_templates else None
        rna = None
        if rna_db is not None:
            open_rna = _searcher_opener(None, rna_db, device, (), None, "rna")
            rna = replace(search, settings=settings.for_rna(), open_searcher=open_rna)
        export_jobs(ExportRun(inputs, kind, search, msa_files, find_templates, rna), Path(out))
        return
    write_results(search, out, kind, columns)


def _split_arguments(
    context: click.Context,
    arguments: tuple[str, ...],
    database: tuple[str, ...],
    server: Path | None,
    profiles: tuple[str, ...],
    save_profile: str | None,
) -> tuple[list[str], str]:
    """Return the queries and the database among the positional arguments; with a server, "" as database.

    Raises:
        click.UsageError: an argument is missing, one is given that --server does not allow, or a database is
            among the queries.
    """
    if server is not None:
        inputs, db = list(arguments), ""
        _refuse_local_options(context, save_profile)
    elif database:
        inputs, (db,) = list(arguments), database
    elif not arguments or len(arguments) + len(profiles) < 2:
        raise click.UsageError("Missing argument 'DB': give one or more queries, then the database.")
    else:
        *inputs, db = arguments
    if not inputs and not profiles:
        raise click.UsageError("Missing argument 'QUERY'.")
    for path in inputs:
        if options.is_database(path):
            place = "comes last, after the queries" if server is None else "is the server's"
            place = "is named with --db" if database else place
            raise click.UsageError(f"{path} is a database, not a query: the database {place}.")
    return inputs, db


def _table_columns(kind: str, format_output: str | None) -> tuple[str, ...]:
    """Return the columns of a table.

    Raises:
        click.UsageError: a column does not exist, or the result is no table.
    """
    from msa.alignments.m8 import DEFAULT_COLUMNS, parse_columns

    if format_output is None:
        return DEFAULT_COLUMNS
    if kind != "m8":
        raise click.UsageError("--format-output is for --format m8 only.")
    try:
        return parse_columns(format_output)
    except ValueError as error:
        raise click.UsageError(f"--format-output: {error}") from error


def _exact_options(values: Mapping[str, Any], option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an exact search.

    Args:
        values: values of all options.
        option_values: those of the options of searches.

    Raises:
        click.UsageError: names the first one that --exact does not support.
    """
    unsupported = {
        "--format " + values["kind"]: values["kind"] != "m8",
        "--server": values["server"] is not None,
        "--partial": values["partial"],
        "--profile": bool(values["profiles"]),
        "--save-profile": values["save_profile"] is not None,
        "--num-iterations": values["num_iterations"] is not None,
    }
    if given := next((option for option, is_given in unsupported.items() if is_given), None):
        raise click.UsageError(f"--exact cannot be combined with {given}.")
    return _without_limits(option_values)


def _rna_options(context: click.Context, option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a search for RNA.

    Raises:
        click.UsageError: names the first option that is for proteins only.
    """
    for_proteins = {"matrix", "exact", "server", "params", "qsc"} & _given(context)
    if context.params["kind"] in _JOB_FORMATS:
        raise click.UsageError(f"--format {context.params['kind']} takes databases of RNA with --rna-db.")
    if for_proteins:
        raise click.UsageError(f"--molecule rna cannot be combined with --{min(for_proteins)}.")
    return option_values | {"matrix": "RNA"}


def _alignment_settings(kind: str, option_values: dict[str, Any], threads: int) -> "AlignmentSettings":
    """Return the settings of searches and alignments.

    Raises:
        click.UsageError: an option of alignments is given for a table.
    """
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
    from msa.engines.settings import AlignmentFilter

    settings = AlignmentSettings.from_options(option_values, threads, tables=kind == "m8")
    if kind == "m8" and settings.row_filter != AlignmentFilter():
        raise click.UsageError(
            "--max-seq-id, --qid, --qsc, --cov, --diff and --filter-min-enable are for --format a3m and sto: "
            "tables keep all hits."
        )
    return settings


def _part_run(
    db: str,
    device: str,
    started: "GpuProcess | None",
    sources: "QuerySources",
    settings: "AlignmentSettings",
    kind: str,
    columns: tuple[str, ...],
    previous: Sequence[str],
    shard: Shard,
    overwrite: bool,
) -> "PartSearchRun":
    """Return the search of one part of a split database."""
    from foldcli.pipeline.search.searcher import DatabaseSource
    from foldcli.search_runs.split import PartSearchRun, ResultFormat

    open_searcher = DatabaseSource(db, device, (), started, settings.search.molecule).open_searcher
    result_format = ResultFormat(kind, columns)
    return PartSearchRun(sources, settings, result_format, open_searcher, previous, shard, overwrite)


def _check_molecules(params: str, kind: str, profiles: Sequence[str], partial: bool) -> None:
    """Check that jobs of molecules can be searched.

    Raises:
        click.UsageError: the network has none, or the search is of another kind.
    """
    from foldcli.families.registry import find_family

    family = find_family(params)
    if not family.prepares_jobs:
        raise click.UsageError("--params: only all-atom networks have jobs of molecules; leave it out")
    if kind != "a3m" or profiles or partial:
        raise click.UsageError(
            "--params: jobs are searched with --format a3m, and without profiles or parts."
        )
    family.check_options({}, ())


def _check_partial(
    partial: bool, previous: Sequence[str], server: Path | None, out: str, save_profile: str | None
) -> None:
    """Refuse options that --partial does not support, and one that needs it.

    Raises:
        click.UsageError: one of them is set.
    """
    if not partial:
        if previous:
            raise click.UsageError("--previous is for --partial.")
        return
    if server is not None or save_profile is not None:
        raise click.UsageError("--partial cannot be combined with --server or --save-profile.")
    if out == "-":
        raise click.UsageError("--partial writes a file: name it with -o.")


def _given(context: click.Context) -> set[str]:
    """Return the names of the options that the user gave."""
    default = click.core.ParameterSource.DEFAULT
    return {name for name in context.params if context.get_parameter_source(name) is not default}


def template_stage(library: Path | None, threads: int) -> "TemplateStage":
    """Open a structure library; None is the one that comes with foldcli."""
    from features.templates.library.settings import TemplateSettings
    from foldcli.paths import cache_dir
    from foldcli.pipeline.prepare.template_stage import TemplateStage
    from foldcli.pipeline.targets.settings import TemplateOptions

    search = TemplateSettings(threads=threads)
    return TemplateStage.open(TemplateOptions(library, None, None, None, search), cache_dir())


def _check_jobs(context: click.Context) -> None:
    """Refuse options that cannot be combined with jobs of other programs, and one that needs them.

    Raises:
        click.UsageError: one of them is set.
    """
    values, kind = context.params, context.params["kind"]
    for name in {"msa_files", "templates"} & _given(context):
        if kind != "af3":
            raise click.UsageError(f"--{name.replace('_', '-')} is for --format af3.")
    if values["rna_db"] is not None and kind not in _RNA_FORMATS:
        raise click.UsageError(f"--rna-db is for --format {', '.join(_RNA_FORMATS)}.")
    if kind not in _JOB_FORMATS:
        return
    unsupported = {
        "--partial": values["partial"],
        "--profile": bool(values["profiles"]),
        "--save-profile": values["save_profile"] is not None,
        "-o -": values["out"] == "-",
    }
    if given := next((option for option, is_given in unsupported.items() if is_given), None):
        raise click.UsageError(f"--format {kind} cannot be combined with {given}.")


def _without_limits(option_values: dict[str, Any]) -> dict[str, Any]:
    """Return the option values without the default limits on E-value and number of hits."""
    from msa.engines.settings import MAX_SEQS

    limits = {"evalue": math.inf, "max_seqs": MAX_SEQS}
    return option_values | {name: limit for name, limit in limits.items() if option_values[name] is None}


def _exact_opener(db: str) -> "Callable[[], Searcher]":
    """Return a function that opens the database for an exact search."""

    def open_database() -> "Searcher":
        from foldcli.pipeline.search.searcher import DatabaseSource, ExactSearcher

        return ExactSearcher(DatabaseSource(db, "cpu").open())

    return open_database


def _searcher_opener(
    server: Path | None,
    db: str,
    device: str,
    further: tuple[str, ...],
    started: "GpuProcess | None",
    molecule: Literal["protein", "rna"],
) -> "Callable[[], Searcher]":
    """Return a function that opens the database, or connects to a server."""

    def connect() -> "Searcher":
        from foldcli.server.client import RemoteSearcher

        assert server is not None
        return RemoteSearcher(server)

    def open_database() -> "Searcher":
        # a client of a server needs no search engine
        from msa.gpu.device.process_state import without_collection

        with without_collection():
            from foldcli.pipeline.search.joined import open_joined
            from foldcli.pipeline.search.searcher import DatabaseSource

        return open_joined(DatabaseSource(db, device, further, started, molecule))

    return open_database if server is None else connect


def _refuse_local_options(context: click.Context, save_profile: str | None) -> None:
    """Refuse options and arguments of local searches, which have no meaning with --server.

    Raises:
        click.UsageError: one of these options is set.
    """
    for name in ("device", "threads", "databases"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            name = name.replace("databases", "db")
            raise click.UsageError(f"--{name} cannot be combined with --server: give it to `foldcli serve`.")
    if save_profile is not None:
        raise click.UsageError("--save-profile: the profiles stay in the server; search without --server.")
