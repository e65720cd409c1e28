"""`foldcli cache-features`: compute features of alignments or sequences and store them in a feature cache."""

from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import predict as predict_options
from foldcli.options import search as search_options
from foldcli.options import templates as template_options
from foldcli.options import types
from foldcli.options.command import CACHE_REPLACEMENTS, GroupedCommand, grouped
from msa.base.hardware import available_cores


@click.command("cache-features", cls=GroupedCommand, replacements=CACHE_REPLACEMENTS)
@click.argument("inputs", nargs=-1, type=types.InputType(), required=True, metavar="INPUT...")
@grouped(
    "Input and results",
    options.several_databases_option(
        "Target database for input sequences, or several, as for `fold`; alignments need none."
    ),
    options.cache_option,
    options.no_verify_option,
    options.overwrite_option,
)
@grouped("Search", search_options.search_options_without_c)
@grouped("Rows of the alignment", search_options.alignment_options)
@grouped("Complexes", search_options.pairing_options)
@grouped(
    "Jobs of molecules", predict_options.jobs_option, predict_options.seed_options, options.rna_db_option
)
@grouped("Templates, for jobs of molecules", template_options.template_options)
@grouped(
    "Device",
    options.device_option("the search"),
    options.threads_option,
    click.option(
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        default=available_cores,
        show_default="the cores this process may use",
        help="Processes that compute features, each for one target at a time.",
    ),
)
@grouped(
    "Run",
    options.dry_run_option,
    options.flag("--json", "as_json", help="With --dry-run: print the plan as one JSON object."),
    options.shard_option,
    options.logging_options,
)
def command(inputs: tuple[str, ...], **option_values: Any) -> None:
    """Turn alignments into cached model features.

    \b
    INPUT is one of these, compressed or not:
      an alignment      A3M, Stockholm or aligned FASTA, the query first;
                        A3M of a complex, from `foldcli search` or ColabFold
      a FASTA file      sequences to search for first, with --db
      a folder          of such files, or of target folders (next line)
      a target folder   uniref90_hits, bfd_*_hits and mgnify_hits (.a3m, .sto),
                        as AlphaFold and OpenFold write them, joined in order
      -                 standard input: an alignment or FASTA

    Complexes in FASTA are searched and paired as by `fold`.

    A file that begins like FASTA is an alignment if its name ends in .a3m or .afa, or if it has several
    records with gaps or insertions. Otherwise, its records are queries.

    With --params openfold3, INPUT are jobs of proteins, nucleic acids and ligands, as for `fold`. Alignments,
    templates and conformers of each seed are stored; `foldcli predict --params openfold3` then needs no
    database and no internet.

    Entries are named by a hash of their content; existing ones are checked and kept. One target's failure
    does not stop the others: the exit code is 5, and CACHE/failures.jsonl lists the failures. The alignments
    that searches find are kept in CACHE/alignments.

    \b
    Examples:
      foldcli cache-features alignments/ --cache features
      foldcli cache-features proteins.fasta --db uniref50 --cache features
      foldcli cache-features jobs/ --params openfold3 --db uniref50
    """
    from foldcli.pipeline.runs.cache_command import run_cache_features

    if option_values["as_json"] and not option_values["dry_run"]:
        raise click.UsageError("--json needs --dry-run.")
    run_cache_features(inputs, option_values, options.given_options())
