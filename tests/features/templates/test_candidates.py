"""Candidates of a template search: the residue pairs of alignments."""

import numpy as np

from features.templates.candidates import aligned_pairs
from features.templates.library.library import StructureLibrary
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.hits.local_alignments import LocalAlignment
from msa.io.fasta import FastaRecord
from msa.search.database_search import search


def expand(alignment: LocalAlignment) -> list[list[int]]:
    """Return the pairs of an alignment, one column after another."""
    i, j, pairs = alignment.query_start - 1, alignment.target_start - 1, []
    for length, operation in alignment.operations:
        for _ in range(length):
            if operation == "M":
                pairs.append([i, j])
            i += operation != "D"
            j += operation != "I"
    return pairs


def test_pairs_equal_the_columns_of_the_alignments(library: StructureLibrary) -> None:
    index = library.find("1gbt_A")
    assert index is not None
    query = FastaRecord("q", library.chain(index).sequence)
    hits = search(query, library.database, SearchSettings(evalue=100.0))
    operations = {operation for hit in hits for _, operation in hit.alignment.operations}
    assert operations == {"M", "I", "D"}
    found = aligned_pairs(hits)
    assert len(found) == len(hits)
    for hit, pairs in zip(hits, found, strict=True):
        np.testing.assert_array_equal(pairs, expand(hit.alignment))
    assert aligned_pairs(Hits.from_sequence(10, [])) == []
