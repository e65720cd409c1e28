"""Tab-separated tables of hits, with MMseqs2's column names and number formats."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import IO, Any

import numpy as np

from msa.alignments.taxonomy import taxon_id, taxon_lineage, taxon_name
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, first_word

Column = tuple[str, Callable[[FastaRecord, Hits], Iterable[Any]]]
"""Format of a column's values, and the function that computes them for all hits."""


def _run_sums(hits: Hits, values: np.ndarray) -> list[int]:
    """Sum `values`, one for each run, over the runs of each hit."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.diff(sums[hits.alignments.run_offsets]).tolist()


def _mismatches(hits: Hits) -> Iterable[int]:
    # a run is 4 * length + operation; operation 0 is a run of aligned pairs
    runs = hits.alignments.runs
    pairs = _run_sums(hits, np.where(runs & 3, 0, runs >> 2))
    return map(operator.sub, pairs, hits.alignments.records[:, 5].tolist())


def _record(column: int) -> Callable[[FastaRecord, Hits], Iterable[int]]:
    return lambda query, hits: hits.alignments.records[:, column].tolist()


def _position(column: int) -> Callable[[FastaRecord, Hits], Iterable[int]]:
    return lambda query, hits: (hits.alignments.records[:, column] + 1).tolist()


COLUMNS: dict[str, Column] = {
    "query": ("%s", lambda query, hits: repeat(query.id, len(hits))),
    "target": ("%s", lambda query, hits: map(first_word, hits.headers)),
    "fident": ("%.3f", lambda query, hits: hits.identities.tolist()),
    "pident": ("%.3f", lambda query, hits: (100 * hits.identities).tolist()),
    "alnlen": ("%d", _record(6)),
    "mismatch": ("%d", lambda query, hits: _mismatches(hits)),
    "gapopen": ("%d", lambda query, hits: _run_sums(hits, hits.alignments.runs & 3 > 0)),
    "qstart": ("%d", _position(1)),
    "qend": ("%d", _position(2)),
    "tstart": ("%d", lambda query, hits: (hits.target_spans[:, 0] + 1).tolist()),
    "tend": ("%d", lambda query, hits: (hits.target_spans[:, 1] + 1).tolist()),
    "evalue": ("%.3E", lambda query, hits: hits.evalues.tolist()),
    "bits": ("%d", lambda query, hits: (hits.bits + 0.5).tolist()),
    "qlen": ("%d", lambda query, hits: repeat(hits.query_length, len(hits))),
    "tlen": ("%d", lambda query, hits: hits.target_lengths.tolist()),
    "qcov": ("%.3f", lambda query, hits: hits.query_coverages.tolist()),
    "tcov": ("%.3f", lambda query, hits: hits.target_coverages.tolist()),
    "cigar": ("%s", lambda query, hits: (hit.alignment.cigar for hit in hits)),
    "qseq": ("%s", lambda query, hits: repeat(query.sequence, len(hits))),
    "tseq": ("%s", lambda query, hits: (hit.sequence for hit in hits)),
    "qaln": ("%s", lambda query, hits: (hit.aligned(query.sequence)[0] for hit in hits)),
    "taln": ("%s", lambda query, hits: (hit.aligned(query.sequence)[1] for hit in hits)),
    "taxid": ("%s", lambda query, hits: map(taxon_id, hits.headers)),
    "taxname": ("%s", lambda query, hits: map(taxon_name, hits.headers)),
    "taxlineage": ("%s", lambda query, hits: map(taxon_lineage, hits.headers)),
    # a tab in a header would shift the columns after it
    "theader": ("%s", lambda query, hits: (header.replace("\t", " ") for header in hits.headers)),
}
"""The columns by name."""

DEFAULT_COLUMNS = (
    "query", "target", "fident", "alnlen", "mismatch", "gapopen",
    "qstart", "qend", "tstart", "tend", "evalue", "bits",
)  # fmt: skip


STRUCTURE_COLUMNS = ("prob", "lddt", "alntmscore", "qtmscore", "ttmscore")
"""Foldseek's columns of a search by structure, of which the search itself computes the values."""


def parse_columns(text: str, further: Sequence[str] = ()) -> tuple[str, ...]:
    """Parse a comma-separated list of column names; `further` are allowed in addition to COLUMNS.

    Raises:
        ValueError: an unknown name; the message lists the known names.
    """
    names = tuple(text.split(","))
    for name in names:
        if name not in (*COLUMNS, *further):
            raise ValueError(f"unknown column {name!r}; available: {', '.join((*COLUMNS, *further))}")
    return names


def write_m8(
    stream: IO[str],
    query: FastaRecord,
    hits: Sequence[Hit],
    columns: Sequence[str] = DEFAULT_COLUMNS,
    further: Mapping[str, Iterable[float]] | None = None,
) -> None:
    """Write one line per hit, without a header line.

    Args:
        stream: text stream.
        query: the query of the hits.
        hits: the hits, in the order of the lines to write.
        columns: keys of COLUMNS and of `further`.
        further: values of further columns by name, one for each hit.
    """
    arrays, given = Hits.from_sequence(len(query.sequence), hits), further or {}
    line = "\t".join("%.3f" if name in given else COLUMNS[name][0] for name in columns) + "\n"
    values = (given[name] if name in given else COLUMNS[name][1](query, arrays) for name in columns)
    rows = zip(*values, strict=True)
    stream.write("".join(map(line.__mod__, rows)))
