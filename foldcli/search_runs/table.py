"""The hits of a run of `foldcli search` in one table."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foldcli.fingerprints import fingerprint
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.inputs.queries import Query
from foldcli.logs import logger
from foldcli.outputs.resumable_table import Table, open_table, refuse_existing
from foldcli.pipeline.search.hit_texts import TextMaker
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.search_runs.settings import SearchRun, profile_file
from foldcli.version import VERSION
from msa.base.atomic import DiskFull, is_stream
from msa.base.errors import MissingError
from msa.base.temporary_names import remove_abandoned_files
from msa.io.fasta import FastaRecord


def write_table(run: SearchRun, out: str, columns: Sequence[str]) -> None:
    """Write the hits of all queries into one table, which appears only when it is complete.

    The finished queries of an interrupted run are kept for the next run with the same table.

    Each distinct chain of a complex is a query of its own, with a name such as NAME_A.

    Args:
        run: the run.
        out: path of the table; "-" is standard output.
        columns: see `msa.alignments.m8`.

    Raises:
        OptionError: the table or the file of profiles exists.
        InputError: a file or a query is invalid.
        MissingError: the disk is full.
    """
    for path in filter(None, (out, run.save_profile)):
        refuse_existing(path, run.overwrite)
        if path != "-" and not is_stream(path):
            remove_abandoned_files(Path(path).parent, f"{Path(path).name}.")
    named_queries = run.queries()
    stage = run.stage()
    queries = _table_queries(named_queries, stage.request)
    num_written = 0
    try:
        with (
            profile_file(run.save_profile, run.settings.search.matrix) as on_profile,
            _open_table(run, out, columns, queries, stage.request) as table,
        ):
            if table.finished:
                logger.info("%s: continuing after %d of %d queries", out, table.finished, len(queries))
            num_written = table.finished
            make = TextMaker(run.settings, columns, None)
            for _, _, texts in stage.search(queries[table.finished :], make, on_profile):
                table.write(texts.table, texts.capped)
                num_written += 1
    except DiskFull as error:
        estimate = error.written * len(queries) // max(num_written, 1)
        needed = f"about {estimate:,}" if estimate else "more"
        raise MissingError(
            f"{error.filename}: no space left on the disk; {needed} bytes are needed, and no partial "
            "file was kept",
            "Free some space, or write to another disk.",
        ) from error
    if table.capped:
        logger.warning(
            "%d of %d queries have more than %d hits (--max-seqs): only the best are listed",
            table.capped, len(queries), run.settings.search.max_seqs,
            extra={"fields": {"capped_queries": table.capped}},
        )  # fmt: skip


def _open_table(
    run: SearchRun,
    out: str,
    columns: Sequence[str],
    queries: Sequence[tuple[str, FastaRecord]],
    request: AlignmentRequest,
) -> contextlib.AbstractContextManager[Table]:
    """Open the table, which can be continued unless profiles are saved with it."""
    if out == "-":
        return contextlib.nullcontext(Table(sys.stdout))
    keys = [
        fingerprint([VERSION, list(columns), name, request.fingerprint(query)]) for name, query in queries
    ]
    return open_table(out, keys, resumable=run.save_profile is None)


def _table_queries(
    queries: Sequence[tuple[str, Query]], request: AlignmentRequest
) -> list[tuple[str, FastaRecord]]:
    """Return the ids and queries of a table; each distinct chain of a complex becomes a query, NAME_A."""
    table: list[tuple[str, FastaRecord]] = []
    chains: dict[str, str] = {}
    repeated = []
    for query_id, query in queries:
        if not isinstance(query, Complex):
            table.append((query_id, query))
            continue
        for letter, chain_record in query.distinct_chains().items():
            chain_name = f"{query.name}_{letter}"
            name = chains.setdefault(request.fingerprint(chain_query(chain_record)), chain_name)
            if name == chain_name:
                table.append((name, replace(chain_record, header=name)))
            else:
                repeated.append(f"{chain_name} is {name}")
    if repeated:
        logger.info("chains that are listed under the name of an earlier one: %s", ", ".join(repeated))
    return table
