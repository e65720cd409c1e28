"""Which hits of a search make the rows of its alignment: none twice, and those that the filter keeps."""

import string
from collections.abc import Sequence

import numpy as np

from msa.alphabet import encode
from msa.io.a3m import a3m_row
from msa.io.fasta import FastaRecord
from msa.io.taxonomy import species
from msa.search.alignment_filter import AlignmentFilter
from msa.search.hits import Hit

_INSERTIONS = str.maketrans("", "", string.ascii_lowercase)


def alignment_hits(
    query: FastaRecord, hits: Sequence[Hit], chosen: AlignmentFilter, threads: int = 1
) -> list[Hit]:
    """The hits that make the alignment's rows, in their order.

    A row that equals an earlier one or the query letter by letter is left out, unless their headers name
    different species: pairing of chains needs one of each.

    Args:
        query: what was searched with; the first row.
        hits: best first.
        chosen: see AlignmentFilter.
        threads: at least 1; the rows do not depend on them.
    """
    seen = {(query.sequence, species(query.header))}
    distinct, rows = [], [query.sequence]
    for hit in hits:
        row = a3m_row(hit)
        if (key := (row, species(hit.header))) not in seen:
            seen.add(key)
            distinct.append(hit)
            rows.append(row.translate(_INSERTIONS))
    if not chosen.active:
        return distinct
    kept = chosen.kept(encode("".join(rows)).reshape(len(rows), -1), threads)
    return [distinct[k] for k in (np.flatnonzero(kept[1:])).tolist()]
