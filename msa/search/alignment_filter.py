"""Selection of the hits that become rows of an alignment, with the options of HH-suite's hhfilter.

The filter itself is in msa/search/row_filter.py; docs/search.md lists where its results differ from
hhfilter's.
"""

import string
from collections.abc import Sequence

from msa.alphabet import encode
from msa.io.a3m import a3m_row
from msa.io.fasta import FastaRecord
from msa.io.taxonomy import species
from msa.search.hits import Hit
from msa.search.settings import AlignmentFilter

_REMOVE_INSERTIONS = str.maketrans("", "", string.ascii_lowercase)


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
