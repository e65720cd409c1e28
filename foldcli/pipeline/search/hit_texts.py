"""The texts that a run stores of a query's hits: their table, and the alignment that is folded."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from foldcli.logs import logger
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.a3m import write_a3m
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.m8 import DEFAULT_COLUMNS, write_m8
from msa.alignments.stockholm import write_stockholm
from msa.base.errors import InputError
from msa.base.services.pool import ServicePool
from msa.database.database import TargetDatabase
from msa.database.manifest import DatabaseManifest
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord

MAX_TEXT_THREADS = 8
"""Maximum number of threads that make the texts of different queries; half of their work is Python."""

_WRITERS = {"a3m": write_a3m, "sto": write_stockholm}


def write_alignment(
    stream: IO[str],
    query: FastaRecord,
    hits: Sequence[Hit],
    settings: AlignmentSettings,
    file_format: str = "a3m",
) -> int:
    """Write the alignment of a query's hits.

    Returns:
        The number of rows after the query.
    """
    search = settings.search
    rows = alignment_hits(query, hits, settings.row_filter, search.threads, search.molecule)
    _WRITERS[file_format](stream, query, rows)
    return len(rows)


@dataclass(frozen=True)
class HitTexts:
    """The hits of a query as texts, made by the process that has searched.

    Args:
        table: the hits, as `write_m8` writes them.
    """

    count: int
    capped: bool
    table: str
    alignment: str

    @classmethod
    def of_hits(cls, query: FastaRecord, hits: Hits, settings: AlignmentSettings) -> "HitTexts":
        """Make the texts of a query's hits."""
        return cls(len(hits), hits.capped, table_text(query, hits), alignment_text(query, hits, settings))

    def __len__(self) -> int:
        return self.count


FoundHits: TypeAlias = Hits | HitTexts
"""The hits of a query, with their texts or without."""


def table_text(query: FastaRecord, hits: FoundHits) -> str:
    """Return the table of a query's hits, with `DEFAULT_COLUMNS`."""
    if isinstance(hits, HitTexts):
        return hits.table
    text = io.StringIO()
    write_m8(text, query, hits, DEFAULT_COLUMNS)
    return text.getvalue()


def alignment_text(query: FastaRecord, hits: FoundHits, settings: AlignmentSettings) -> str:
    """Return the alignment of a query's hits, A3M; texts must have been made with the same settings."""
    if isinstance(hits, HitTexts):
        return hits.alignment
    text = io.StringIO()
    write_alignment(text, query, hits, settings)
    return text.getvalue()


def make_texts(
    query: FastaRecord, hits: Hits, settings: AlignmentSettings, processes: ServicePool | None
) -> HitTexts:
    """Make the texts of a query's hits, if possible in a process of the pool, which opens the database."""
    database = hits.source
    if processes is None or not isinstance(database, TargetDatabase) or not database.can_reopen:
        return HitTexts.of_hits(query, hits, settings)
    nothing: Any = None
    sent = replace(hits, source=nothing, filtered=None)
    try:
        return processes.submit(_texts_of, (database.path, database.manifest, query, sent, settings)).result()
    except (ChildProcessError, InputError) as error:
        logger.debug("%s: making its texts in the process of the searches: %s", query.id, error)
        return HitTexts.of_hits(query, hits, settings)


def _texts_of(
    request: tuple[Path, DatabaseManifest, FastaRecord, Hits, AlignmentSettings],
) -> HitTexts:
    """Make texts in a process of the pool.

    Raises:
        InputError: the database has been replaced.
    """
    path, manifest, query, hits, settings = request
    database = _opened(path)
    if database.manifest != manifest:
        raise InputError("was replaced after it had been opened", path)
    return HitTexts.of_hits(query, replace(hits, source=database), settings)


_opened = cache(TargetDatabase.open)
