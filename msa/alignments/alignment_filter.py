"""Selection of the hits that become rows of an alignment, with the options of HH-suite's hhfilter.

The filter itself is in msa/alignments/row_filter.py; docs/search.md lists where its results differ from
hhfilter's.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from msa.alignments.alignment_rows import a3m_rows, code_rows
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.row_filter import filter_rows
from msa.alignments.taxonomy import species
from msa.alphabet import NUCLEOTIDES_AS_STANDARD, encode
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord
from msa.io.molecules import PROTEIN, RNA


def alignment_hits(
    query: FastaRecord,
    hits: Sequence[Hit],
    criteria: AlignmentFilter,
    threads: int = 1,
    molecule: Literal["protein", "rna"] = PROTEIN,
) -> Hits:
    """Return the hits that become rows of the query's alignment, in order.

    A row that is identical to the query or to an earlier row is left out, unless their headers name different
    species: pairing the chains of a complex needs one row of each species.

    Args:
        query: the first row.
        hits: best first.
        criteria: criteria of the rows to keep.
        threads: at least 1. Does not affect the result.
        molecule: kind of the sequences.
    """
    arrays = Hits.from_sequence(len(query.sequence), hits)
    arrays = arrays.subset(_distinct(query, arrays, a3m_rows(arrays)))
    if not criteria.active:
        return arrays
    rows = code_rows(encode(query.sequence), arrays)
    kept = filter_rows(NUCLEOTIDES_AS_STANDARD[rows] if molecule == RNA else rows, criteria, threads)
    return arrays.subset(kept[1:])


def _distinct(query: FastaRecord, hits: Hits, hit_rows: Sequence[bytes]) -> np.ndarray:
    """Return the indices of hits whose row is new, or is that of a species without an identical row."""
    rows = [query.sequence.encode(), *hit_rows]
    first: dict[bytes, int] = {}
    species_of: dict[bytes, set[str]] = {}
    distinct = []
    for index, row in enumerate(rows):
        if first.setdefault(row, index) == index:
            distinct.append(index)
            continue
        # species are parsed only for the few rows that are identical
        seen = species_of.get(row)
        if seen is None:
            header = hits.source.header(int(hits.rows[first[row] - 1])) if first[row] else query.header
            seen = species_of[row] = {species(header)}
        hit_species = species(hits.source.header(int(hits.rows[index - 1])))
        if hit_species not in seen:
            seen.add(hit_species)
            distinct.append(index)
    return np.array(distinct[1:], np.int64) - 1
