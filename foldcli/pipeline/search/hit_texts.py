"""The texts that runs make of a query's hits, and the threads and processes that make them.

Half of the work is Python, which would hold the interpreter lock while this process leads a search on a GPU.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from foldcli.pipeline.processes.background import map_in_threads
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.m8 import DEFAULT_COLUMNS, write_m8
from msa.alignments.stockholm import write_stockholm
from msa.database.database import TargetDatabase
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import NO_SOURCE, Hits
from msa.io.fasta import FastaRecord

R = TypeVar("R")

# largest number of threads that make the texts of different queries, and of hits that they may get at once
_MAX_THREADS, _MAX_HITS = 8, 2**20
_WRITERS = {"a3m": write_a3m, "sto": write_stockholm}


@dataclass(frozen=True)
class HitTexts:
    """The hits of a query as texts.

    Args:
        count: number of hits.
        capped: whether `max_seqs` limited it.
        table: a line for each hit.
        alignment: the alignment.
        rows: number of its rows after the query.
    """

    count: int
    capped: bool
    table: str
    alignment: str
    rows: int


@dataclass(frozen=True)
class TextMaker:
    """A function that makes the texts of a query's hits, and can be sent to another process.

    Args:
        settings: settings of the alignment.
        columns: columns of the table; None for no table.
        file_format: "a3m" or "sto", of the alignment; None for no alignment.
    """

    settings: AlignmentSettings
    columns: Sequence[str] | None = DEFAULT_COLUMNS
    file_format: str | None = "a3m"

    def __call__(self, query: FastaRecord, hits: Hits) -> HitTexts:
        """Return the texts."""
        table, alignment, rows = io.StringIO(), io.StringIO(), 0
        if self.columns is not None:
            write_m8(table, query, hits, self.columns)
        if self.file_format is not None:
            search = self.settings.search
            kept = alignment_hits(query, hits, self.settings.row_filter, search.threads, search.molecule)
            _WRITERS[self.file_format](alignment, query, kept)
            rows = len(kept)
        return HitTexts(len(hits), hits.capped, table.getvalue(), alignment.getvalue(), rows)


def map_hits(
    make: Callable[[FastaRecord, Hits], R],
    found: Iterator[tuple[FastaRecord, Hits]],
    settings: SearchSettings,
    processes: DatabaseProcesses,
) -> Iterator[tuple[FastaRecord, R]]:
    """Yield each query with what `make` returns for its hits, in order, while the search goes on.

    Args:
        make: a picklable function.
        found: queries and hits; an error is raised after the results of the queries before it.
        settings: settings of the search.
        processes: call `make` if they have started, and can open the database of the hits.
    """

    def call(pair: tuple[FastaRecord, Hits]) -> tuple[FastaRecord, R]:
        query, hits = pair
        if not processes.have_started or not isinstance(hits.source, TargetDatabase):
            return query, make(query, hits)
        sent = replace(hits, source=NO_SOURCE, filtered=None)
        return query, processes.call(hits.source, _make, make, query, sent)

    threads = min(settings.threads, _MAX_THREADS, max(1, _MAX_HITS // settings.max_seqs))
    return map_in_threads(call, found, threads)


def _make(
    database: TargetDatabase, make: Callable[[FastaRecord, Hits], R], query: FastaRecord, hits: Hits
) -> R:
    """Call `make` with hits that were sent without their source."""
    return make(query, replace(hits, source=database))
