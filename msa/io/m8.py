"""Tab-separated tables of hits, with MMseqs2's column names and number formats."""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import IO

import numpy as np

from msa.io.fasta import FastaRecord, first_word
from msa.search.hits import Hit, Hits

Column = Callable[[FastaRecord, Hits], Iterable[str]]


def _run_sums(hits: Hits, values: np.ndarray) -> np.ndarray:
    """Sum a number of each run over the runs of each hit, int64 [n]."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.diff(sums[hits.alignments.run_offsets])


def _pairs(hits: Hits) -> np.ndarray:
    # a run is 4 * length + operation; operation 0 is a run of aligned pairs
    runs = hits.alignments.runs
    return _run_sums(hits, np.where(runs & 3, 0, runs >> 2))


def _integers(values: np.ndarray) -> Iterable[str]:
    return map(str, values.tolist())


def _fractions(values: np.ndarray) -> Iterable[str]:
    return map("%.3f".__mod__, values.tolist())


COLUMNS: dict[str, Column] = {
    "query": lambda query, hits: repeat(query.id, len(hits)),
    "target": lambda query, hits: map(first_word, hits.headers),
    "fident": lambda query, hits: _fractions(hits.identities),
    "pident": lambda query, hits: _fractions(100 * hits.identities),
    "alnlen": lambda query, hits: _integers(hits.alignments.records[:, 6]),
    "mismatch": lambda query, hits: _integers(_pairs(hits) - hits.alignments.records[:, 5]),
    "gapopen": lambda query, hits: _integers(_run_sums(hits, hits.alignments.runs & 3 > 0)),
    "qstart": lambda query, hits: _integers(hits.alignments.records[:, 1] + 1),
    "qend": lambda query, hits: _integers(hits.alignments.records[:, 2] + 1),
    "tstart": lambda query, hits: _integers(hits.alignments.records[:, 3] + 1),
    "tend": lambda query, hits: _integers(hits.alignments.records[:, 4] + 1),
    "evalue": lambda query, hits: map("%.3E".__mod__, hits.evalues.tolist()),
    "bits": lambda query, hits: _integers((hits.bits + 0.5).astype(np.int64)),
    "qlen": lambda query, hits: repeat(str(hits.query_length), len(hits)),
    "tlen": lambda query, hits: _integers(hits.target_lengths),
    "qcov": lambda query, hits: _fractions(hits.query_coverages),
    "tcov": lambda query, hits: _fractions(hits.target_coverages),
    "cigar": lambda query, hits: (hit.cigar for hit in hits),
    "qseq": lambda query, hits: repeat(query.sequence, len(hits)),
    "tseq": lambda query, hits: (hit.sequence for hit in hits),
    "qaln": lambda query, hits: (hit.aligned(query.sequence)[0] for hit in hits),
    "taln": lambda query, hits: (hit.aligned(query.sequence)[1] for hit in hits),
    # a tab in a header would shift the columns after it
    "theader": lambda query, hits: (header.replace("\t", " ") for header in hits.headers),
}
"""The function that formats each column."""

DEFAULT_COLUMNS = (
    "query", "target", "fident", "alnlen", "mismatch", "gapopen",
    "qstart", "qend", "tstart", "tend", "evalue", "bits",
)  # fmt: skip


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of column names.

    Raises:
        ValueError: an unknown name; the message lists the known names.
    """
    names = tuple(text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}; available: {', '.join(COLUMNS)}")
    return names


def write_m8(
    stream: IO[str], query: FastaRecord, hits: Sequence[Hit], columns: Sequence[str] = DEFAULT_COLUMNS
) -> None:
    """Write one line per hit, without a header line.

    Args:
        stream: text stream.
        query: the query of the hits.
        hits: the hits, in the order of the lines to write.
        columns: keys of COLUMNS.
    """
    arrays = Hits.from_sequence(len(query.sequence), hits)
    rows = zip(*(COLUMNS[name](query, arrays) for name in columns), strict=True)
    stream.write("".join(["\t".join(row) + "\n" for row in rows]))
