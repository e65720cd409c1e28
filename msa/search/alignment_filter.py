"""Selection of the hits that become rows of an alignment, with the options of HH-suite's hhfilter.

The filter itself is in msa/search/row_filter.py; docs/search.md lists where its results differ from
hhfilter's.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

from msa.alphabet import encode
from msa.errors import InputError
from msa.io.a3m import a3m_row
from msa.io.fasta import FastaRecord
from msa.io.taxonomy import species
from msa.search.hits import Hit

_RANGES = {
    "max_seq_id": (0, 1),
    "qid": (0, 1),
    "qsc": (-math.inf, math.inf),
    "cov": (0, 1),
    "diff": (0, 2**31 - 1),
}
_REMOVE_INSERTIONS = str.maketrans("", "", string.ascii_lowercase)


@dataclass(frozen=True)
class AlignmentFilter:
    """The criteria for rows of an alignment; by default, all rows are kept.

    Args:
        max_seq_id: largest identity of two rows, as a fraction of the columns in which both have a residue;
            of two rows above it, the one with fewer residues is removed.
        qid: smallest identity with the query, as a fraction of the row's residues.
        qsc: smallest score with the query, bits per residue; None for no limit.
        cov: smallest fraction of the query's columns in which the row has a residue.
        diff: keep only the most diverse rows, at least this many around every column; 0 to keep all.

    Raises:
        InputError: a number is out of range.
    """

    max_seq_id: float = 1.0
    qid: float = 0.0
    qsc: float | None = None
    cov: float = 0.0
    diff: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:  # also rejects NaN
                raise InputError(f"{name} is {value}: expected {low} to {high}")

    @property
    def active(self) -> bool:
        """True if the criteria can remove rows."""
        return self != AlignmentFilter()


def alignment_hits(
    query: FastaRecord, hits: Sequence[Hit], criteria: AlignmentFilter, threads: int = 1
) -> list[Hit]:
    """Return the hits that become rows of the query's alignment, in order.

    A row that is identical to the query or to an earlier row is left out, unless their headers name different
    species: pairing the chains of a complex needs one row of each species.

    Args:
        query: the first row.
        hits: best first.
        criteria: see AlignmentFilter.
        threads: at least 1. Does not affect the result.
    """
    seen = {(query.sequence, species(query.header))}
    distinct, rows = [], [query.sequence]
    for hit in hits:
        row = a3m_row(hit)
        if (key := (row, species(hit.header))) not in seen:
            seen.add(key)
            distinct.append(hit)
            rows.append(row.translate(_REMOVE_INSERTIONS))
    if not criteria.active:
        return distinct
    # imported here so that clients of a search server, which seldom filter, start without loading numba
    from msa.search.row_filter import filter_rows

    kept = filter_rows(encode("".join(rows)).reshape(len(rows), -1), criteria, threads)
    return [hit for hit, keep in zip(distinct, kept[1:].tolist(), strict=True) if keep]
