"""Alignments of the chains to train on, searched in batches that an interrupted run keeps."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from foldcli.fingerprints import fingerprint
from foldcli.pipeline.search.protocols import HitSearcher
from foldcli.pipeline.targets.order import SEARCH_BATCH
from foldcli.progress import progress_bar
from foldcli.version import VERSION
from msa.alignments.alignment_filter import alignment_hits
from msa.alignments.alignment_rows import code_rows
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.row_filter import ROW_CODES
from msa.alphabet import encode
from msa.base.atomic import atomic_write
from msa.engines.search_settings import FOLDING_SEARCH
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

MAX_ROWS = 96
"""Largest number of rows of an alignment, the chain itself included."""
_SEARCH = replace(FOLDING_SEARCH, evalue=1e-3)
_ROW_FILTER = AlignmentFilter(max_seq_id=0.95, diff=MAX_ROWS)


def chain_alignments(
    queries: Sequence[FastaRecord], searcher: HitSearcher, parts: Path, threads: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the alignment of each chain; equal sequences are searched once.

    Args:
        queries: names and sequences of the chains.
        searcher: the database.
        parts: folder for the alignments of finished batches, which are not searched again.
        threads: CPU threads. Does not affect the result.

    Yields:
        Name and alignment, [rows, length] uint8: 0 to 19 amino acids, 20 unknown, 21 gap; the first row is
        the chain itself, and the others are distinct, at most MAX_ROWS in all.

    Raises:
        InputError: a file of the database has changed.
        OSError: a file cannot be written or read.
    """
    distinct = list({query.sequence: query for query in queries}.values())
    found: dict[str, np.ndarray] = {}
    with progress_bar("alignments", "chains") as progress:
        for first in range(0, len(distinct), SEARCH_BATCH):
            batch = distinct[first : first + SEARCH_BATCH]

            def report(pairs: int, total: int | None, first: int = first, size: int = len(batch)) -> None:
                progress(first + (pairs * size // total if total else 0), len(distinct))

            path = parts / f"{_batch_key(batch, searcher)}.npz"
            if not path.is_file():
                results = searcher.search_many(batch, replace(_SEARCH, threads=threads), report)
                alignments = [_rows(query, hits, threads) for query, hits in results]
                with atomic_write(path, "wb") as stream:
                    np.savez_compressed(stream, *alignments)
            with np.load(path, allow_pickle=False) as stored:
                found |= {query.sequence: stored[f"arr_{index}"] for index, query in enumerate(batch)}
            progress(len(found), len(distinct))
    for query in queries:
        yield query.id, found[query.sequence]


def _batch_key(batch: Sequence[FastaRecord], searcher: HitSearcher) -> str:
    """Return the name of a batch, which depends on everything that its alignments depend on."""
    settings = [asdict(_SEARCH), asdict(_ROW_FILTER), MAX_ROWS]
    return fingerprint([VERSION, searcher.checksums, settings, [query.sequence for query in batch]])[:32]


def _rows(query: FastaRecord, hits: Hits, threads: int) -> np.ndarray:
    """Return the first distinct rows of a query's alignment, the query first."""
    kept = alignment_hits(query, hits, _ROW_FILTER, threads)[: MAX_ROWS - 1]
    return ROW_CODES[code_rows(encode(query.sequence), kept)]
