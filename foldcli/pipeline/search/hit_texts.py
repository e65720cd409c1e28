"""The texts that runs make of a query's hits, and the threads and processes that make them.

Half of the work is Python, which would hold the interpreter lock while the same process leads a search on a
GPU. With many queries, processes therefore make the texts, from hits that are sent without their sequences.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.processes.background import map_in_threads
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.m8 import DEFAULT_COLUMNS, write_m8
from msa.alignments.stockholm import write_stockholm
from msa.base.errors import InputError
from msa.base.services.pool import ServicePool
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.hits.hits import Hits
from msa.hits.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

R = TypeVar("R")

# largest number of threads that make the texts of different queries, and of hits that they may get at once
_MAX_THREADS, _MAX_HITS = 8, 2**20
# processes that make texts, and number of queries from which their start, half a second of CPU time, pays
_MAX_PROCESSES, _MIN_PROCESS_QUERIES = 4, 128
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


class TextProcesses:
    """Processes that make the texts of the hits in one database; they end with this process."""

    def __init__(self) -> None:
        self._queries = 0
        self._pool: ServicePool | None = None

    def pool(self, database: TargetDatabase, queries: int, threads: int) -> ServicePool | None:
        """Return the processes, which start when enough queries have been announced; None before.

        Args:
            database: the database.
            queries: number of queries that will be searched next.
            threads: CPU threads of their search.
        """
        self._queries += queries
        count = min(_MAX_PROCESSES, threads // 2)
        if self._pool is None and count and self._queries >= _MIN_PROCESS_QUERIES and database.can_reopen:
            self._pool = WorkerPool(count, partial(_opened, database.path.resolve()))
            self._pool.start()
        return self._pool


def map_hits(
    make: Callable[[FastaRecord, Hits], R],
    found: Iterator[tuple[FastaRecord, Hits]],
    settings: SearchSettings,
    processes: ServicePool | None = None,
) -> Iterator[tuple[FastaRecord, R]]:
    """Yield each query with what `make` returns for its hits, in order, while the search goes on.

    Args:
        make: a picklable function.
        found: queries and hits; an error is raised after the results of the queries before it.
        settings: settings of the search.
        processes: call `make` if they can open the database of the hits.
    """

    def call(pair: tuple[FastaRecord, Hits]) -> tuple[FastaRecord, R]:
        query, hits = pair
        return query, _call_in(processes, make, query, hits)

    threads = min(settings.threads, _MAX_THREADS, max(1, _MAX_HITS // settings.max_seqs))
    return map_in_threads(call, found, threads)


def _call_in(
    processes: ServicePool | None, make: Callable[[FastaRecord, Hits], R], query: FastaRecord, hits: Hits
) -> R:
    """Call a function of a query's hits, if possible in a process."""
    database = hits.source
    if processes is None or not isinstance(database, TargetDatabase) or not database.can_reopen:
        return make(query, hits)
    nothing: Any = None
    sent = replace(hits, source=nothing, filtered=None)
    try:
        return processes.submit(
            _call_with_database, (database.path.resolve(), database.manifest, make, query, sent)
        ).result()
    except (ChildProcessError, InputError) as error:
        logger.debug("%s: making its texts in the process of the search: %s", query.id, error)
        return make(query, hits)


def _call_with_database(
    request: tuple[Path, DatabaseManifest, Callable[[FastaRecord, Hits], R], FastaRecord, Hits],
) -> R:
    """Call a function of hits in a process of the pool.

    Raises:
        InputError: the database has been replaced.
    """
    path, manifest, make, query, hits = request
    database = _opened(path)
    if database.manifest != manifest:
        raise InputError("was replaced after it had been opened", path)
    return make(query, replace(hits, source=database))


@cache
def _opened(path: Path) -> TargetDatabase:
    return TargetDatabase.open(path)
