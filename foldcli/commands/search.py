"""`foldcli search`: search a target database with queries and write the hits."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import search as search_options
from foldcli.options import types
from foldcli.options.command import COMMON_OPTIONS, SEARCH_REPLACEMENTS, GroupedCommand, grouped
from foldcli.options.templates import library_option

if TYPE_CHECKING:
    from foldcli.search_runs.settings import SearchRun

# the keys of foldcli.exports.run.FORMATS
JOB_FORMATS = ("af3", "boltz", "openfold3", "protenix", "chai")

_input_and_result_options = options.combine(
    options.output_option("m8: a file; otherwise a folder with one file per query or job; - is stdout."),
    options.choice_option(
        "--format",
        "file_format",
        choices=["m8", "a3m", "sto", *JOB_FORMATS],
        help="Table of hits, A3M or Stockholm alignments; or jobs of AlphaFold 3, Boltz, OpenFold3, Protenix "
        "or Chai, which get alignments.",
    ),
    options.several_databases_option(
        metavar="DB",
        help="Target database; all arguments are then queries. Repeat the option to search further databases "
        "with the profiles of the first.",
    ),
    options.molecule_option,
    options.rna_db_option,
    options.choice_option(
        "--strand",
        choices=["plus", "both"],
        help="Strands of RNA to search; hits in a reverse complement have tstart > tend.",
    ),
    options.flag(
        "--msa-files", help="af3: write the alignments to files that the job names, not into the job."
    ),
    library_option(
        "af3: also search this structure library, or without LIBRARY the one that comes with foldcli, "
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
        type=types.PathType(),
        help="Search with the profiles in a file from --save-profile, instead of or in addition to QUERY.",
    ),
    click.option(
        "--save-profile",
        type=types.PathType(),
        help="Save the last profiles. m8: a file; a3m, sto: a folder with one NAME.npz per query.",
    ),
    options.flag(
        "--exact",
        help="Find all exact occurrences of the queries, for example of peptides, instead of similar "
        "sequences; all are listed unless -e or --max-seqs is given.",
    ),
    options.flag(
        "--structure",
        help="QUERY are models, as mmCIF or PDB; find chains of similar structure in the structure library "
        "--db, or in the one that comes with foldcli.",
    ),
    click.option(
        "--superposed",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="With --structure: write each hit, moved onto its query, to FOLDER/QUERY/.",
    ),
    options.flag(
        "--partial",
        help="Search one part of a split database (`createdb --split`). OUT is a file from which, together "
        "with those of the other parts, `foldcli merge-hits` makes the result in --format.",
    ),
    click.option(
        "--previous",
        multiple=True,
        type=types.PathType(),
        metavar="HITS",
        help="With --partial: OUT of an earlier iteration; repeat the option for each part and iteration. "
        "Without it, the first iteration is run.",
    ),
    options.overwrite_option,
)


@click.command("search", cls=GroupedCommand, replacements=SEARCH_REPLACEMENTS, common=COMMON_OPTIONS)
@click.argument("queries", nargs=-1, type=types.PathType(), metavar="[QUERY...] [DB]")
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
def command(context: click.Context, queries: tuple[str, ...], **values: Any) -> None:
    """Search a target database with protein queries.

    QUERY is a FASTA file (each record is a query), an A3M or Stockholm alignment (searched with the profile
    of its rows), a ColabFold table `id,sequence`, an AlphaFold 3 JSON or Boltz YAML file of protein
    chains, profiles that --save-profile wrote, an MMseqs2 database of sequences or profiles, a folder of such
    files, or - for standard input; see docs/inputs.md. DB is a database from `foldcli createdb`, or a FASTA
    file or MMseqs2 database, converted once into $FOLDCLI_CACHE. With --server there is no DB, and the
    server decides on device and threads; everything else works the same. With --molecule rna, queries and
    database are RNA, as FASTA.

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
    job and alignments of its proteins, and with --rna-db of its RNA; see docs/search.md.

    \b
    Examples:
      foldcli search proteins.fasta uniref50 -o hits.m8
      foldcli search proteins.fasta uniref50 -o alignments --format a3m --fast
      foldcli search job.json uniref50 -o out --format a3m --params openfold3
      foldcli search jobs/ uniref50 -o filled --format boltz
      foldcli search --structure model.cif --db library -o similar.m8
    """
    if values["structure"]:
        from foldcli.search_runs.structures import run_structure_search

        if library := next(filter(types.is_structure_library, queries), None):
            raise click.UsageError(f"{library} is a structure library, not a model: name it with --db.")
        run_structure_search(queries, values, options.given_options(context))
        return
    if values["superposed"] is not None:
        raise click.UsageError("--superposed is for --structure.")
    inputs, db = _split_arguments(context, queries)
    started = None
    if values["server"] is None and not values["exact"] and not values["databases"][1:]:
        # while everything else is imported
        from foldcli.pipeline.search.search_process import are_many, open_gpu

        started = open_gpu(values["device"], are_many([*inputs, *values["profiles"]]))
    from foldcli.search_runs.start import run_search

    export_jobs = partial(_export_jobs, context, inputs)
    run_search(values, options.given_options(context), inputs, db, started, export_jobs)


def _export_jobs(
    context: click.Context, inputs: list[str], run: "SearchRun", rna: "SearchRun | None"
) -> None:
    """Write the jobs of another program with the alignments of runs, and templates if requested."""
    from foldcli.exports.run import ExportRun, export_jobs
    from foldcli.pipeline.prepare.template_stage import open_library

    values, has_templates = context.params, "templates" in options.given_options(context)
    templates = open_library(values["templates"], values["threads"]) if has_templates else None
    export = ExportRun(inputs, values["file_format"], run, values["msa_files"], templates, rna)
    export_jobs(export, Path(values["out"]))


def _split_arguments(context: click.Context, arguments: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the queries and the database among the positional arguments; with a server, "" as database."""
    values = context.params
    server, database, profiles = values["server"], values["databases"][:1], values["profiles"]
    if server is not None:
        inputs, db = list(arguments), ""
        _refuse_local_options(context)
    elif database:
        inputs, (db,) = list(arguments), database
    elif not arguments or len(arguments) + len(profiles) < 2:
        raise click.UsageError("Missing argument 'DB': give one or more queries, then the database.")
    else:
        *inputs, db = arguments
    if not inputs and not profiles:
        raise click.UsageError("Missing argument 'QUERY'.")
    for path in inputs:
        if types.is_database(path):
            place = "comes last, after the queries" if server is None else "is the server's"
            place = "is named with --db" if database else place
            raise click.UsageError(f"{path} is a database, not a query: the database {place}.")
    return inputs, db


def _refuse_local_options(context: click.Context) -> None:
    """Refuse options and arguments of local searches, which have no meaning with --server."""
    for name in ("device", "threads", "databases"):
        if name in options.given_options(context):
            name = name.replace("databases", "db")
            raise click.UsageError(f"--{name} cannot be combined with --server: give it to `foldcli serve`.")
    if context.params["save_profile"] is not None:
        raise click.UsageError("--save-profile: the profiles stay in the server; search without --server.")
