"""`foldcli templates`: search a structure library for templates."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options.templates import template_options
from foldcli.paths import cache_dir
from msa.base.atomic import atomic_write

if TYPE_CHECKING:
    from msa.io.fasta import FastaRecord


@click.command("templates")
@click.argument("queries", nargs=-1, required=True, type=options.InputType(), metavar="QUERY...")
@click.option(
    "-o", "--out", required=True, type=options.PathType(), metavar="OUT", help="File; - is standard output."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["m8", "af3"]),
    default="m8",
    show_default=True,
    help="Table of templates, or JSON with the template entries of AlphaFold 3's jobs by query.",
)
@template_options
@options.threads_option
@options.overwrite_option
@options.logging_options
def command(
    queries: tuple[str, ...], out: str, kind: str, threads: int, overwrite: bool, **option_values: Any
) -> None:
    """Search a structure library for templates, and write tables or AlphaFold 3's entries.

    QUERY is an input of `foldcli search`; an alignment finds more than its first sequence. Each distinct
    chain of a complex is a query of its own. docs/templates.md says how templates are chosen. A table has the
    columns of `foldcli search --format m8`.

    \b
    Examples:
      foldcli templates protein.a3m -o templates.m8
      foldcli templates protein.a3m -o templates.json --format af3 --templates library
    """
    from features.templates.search import search_templates_many
    from foldcli.exports.templates import log_unknown_dates, template_entries, write_template_hits
    from foldcli.pipeline.prepare.template_stage import TemplateStage
    from foldcli.pipeline.targets.settings import TemplateOptions

    settings = TemplateOptions.from_options(option_values, threads)
    if settings is None or settings.hit_file is not None:
        raise click.UsageError("--no-templates and --pdb-hit-file leave nothing to search.")
    if out != "-" and Path(out).exists() and not overwrite:
        raise click.UsageError(f"{out} exists; --overwrite replaces it.")
    records = _read_records(queries)
    stage = TemplateStage.open(settings, cache_dir())
    assert stage.library is not None
    text, entries = io.StringIO(), {}
    for query, hits in search_templates_many(records, stage.library, stage.settings):
        logger.info("%s: %d templates", query.id, len(hits.templates))
        write_template_hits(text, query.id, hits)
        if kind == "af3":
            log_unknown_dates(query.id, hits)
            entries[query.id] = template_entries(hits)
    content = text.getvalue() if kind == "m8" else json.dumps(entries, indent=1) + "\n"
    if out == "-":
        sys.stdout.write(content)
        return
    with atomic_write(out) as stream:
        stream.write(content)


def _read_records(paths: tuple[str, ...]) -> "list[FastaRecord]":
    """Return the queries; a complex is one query for each distinct chain, such as NAME_A.

    Raises:
        InputError: a file or a query is invalid.
    """
    from foldcli.inputs.complexes import Complex
    from foldcli.inputs.queries import QuerySources, name_queries
    from msa.search.search import check_query

    sources = QuerySources(list(paths), True, "BLOSUM62", ())
    records = []
    for _, query in name_queries(record for _, read in sources.readers() for record in read()):
        if isinstance(query, Complex):
            chains = query.distinct_chains()
            records += [replace(chain, header=f"{query.name}_{name}") for name, chain in chains.items()]
        else:
            records.append(query)
    for record in records:
        check_query(record)
    return records
