"""The search that `foldcli templates` starts: its options are checked, then tables or entries are written."""

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from features.templates.search import search_templates_many
from foldcli.errors import OptionError
from foldcli.exports.templates import log_unknown_dates, template_entries, write_template_hits
from foldcli.inputs.complexes import Complex
from foldcli.inputs.queries import QuerySources, name_queries
from foldcli.logs import logger
from foldcli.outputs.resumable_table import refuse_existing
from foldcli.paths import cache_dir
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.targets.settings import TemplateOptions
from msa.base.atomic import atomic_write
from msa.io.fasta import FastaRecord
from msa.search.database_search import check_query


def run_template_search(
    queries: Sequence[str], out: str, file_format: str, threads: int, overwrite: bool, values: dict[str, Any]
) -> None:
    """Search a library, and write the templates.

    Args:
        queries: the inputs.
        out: the file; "-" is standard output.
        file_format: "m8" or "af3".
        threads: CPU threads.
        overwrite: replace an existing file.
        values: values of `template_options`.

    Raises:
        OptionError: options exclude each other, or the file exists.
        InputError: a query or the library is invalid.
    """
    settings = TemplateOptions.from_options(values, threads)
    if settings is None or settings.hit_file is not None:
        raise OptionError("--no-templates and --pdb-hit-file leave nothing to search.")
    refuse_existing(out, overwrite)
    records = _read_records(queries)
    stage = TemplateStage.open(settings, cache_dir())
    assert stage.library is not None
    text, entries = io.StringIO(), {}
    for query, hits in search_templates_many(records, stage.library, stage.settings):
        logger.info("%s: %d templates", query.id, len(hits.templates))
        write_template_hits(text, query.id, hits)
        if file_format == "af3":
            log_unknown_dates(query.id, hits)
            entries[query.id] = template_entries(hits)
    content = text.getvalue() if file_format == "m8" else json.dumps(entries, indent=1) + "\n"
    if out == "-":
        sys.stdout.write(content)
        return
    with atomic_write(out) as stream:
        stream.write(content)


def _read_records(paths: Sequence[str]) -> list[FastaRecord]:
    """Return the queries; a complex is one query for each distinct chain, such as NAME_A."""
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
