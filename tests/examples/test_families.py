"""Searches with the examples: each finds its family in demo.fasta, and other proteins score lower."""

from collections.abc import Iterator

import numpy as np
import pytest
from Bio.Align import Alignment, PairwiseAligner, substitution_matrices

MIN_COVERAGE = 0.7  # fraction of the query in a local alignment


def local_aligner() -> PairwiseAligner:
    """Return a Smith-Waterman aligner with BLOSUM62 and a cost of 11 + (k - 1) for k gap residues."""
    aligner = PairwiseAligner(mode="local", substitution_matrix=substitution_matrices.load("BLOSUM62"))
    aligner.open_gap_score, aligner.extend_gap_score = -11, -1
    return aligner


def columns(alignment: Alignment) -> Iterator[tuple[int, int]]:
    """Yield the aligned residue pairs: index in query, index in target."""
    for query_block, target_block in zip(*alignment.aligned, strict=True):
        yield from zip(range(*query_block), range(*target_block), strict=True)


def identity(alignment: Alignment) -> tuple[float, float]:
    """Return the fraction of identical residue pairs, and the fraction of the query that is aligned."""
    query, target = alignment.sequences
    same = [query[i] == target[j] for i, j in columns(alignment)]
    return float(np.mean(same)), len(same) / len(query)


@pytest.mark.parametrize(
    ("name", "family", "min_members", "min_identity"),
    [
        ("ubiquitin", "ubiquitin", 15, 0.3),
        ("myoglobin", "globin", 20, 0.22),
        ("lysozyme", "lysozyme", 11, 0.35),
        ("gb1", "protein G", 5, 0.85),
    ],
)
def test_family_is_found(queries, families, name, family, min_members, min_identity):
    query, aligner = queries[name].sequence, local_aligner()
    similar, scores = 0, {}
    for group, members in families.items():
        for member, sequence in members.items():
            best = aligner.align(query, sequence)[0]
            scores[group, member] = best.score
            same, covered = identity(best)
            similar += group == family and same >= min_identity and covered >= MIN_COVERAGE
    assert similar >= min_members
    members = sorted((score for (group, _), score in scores.items() if group == family), reverse=True)
    others = max(score for (group, _), score in scores.items() if group != family)
    assert members[min_members - 1] > 1.3 * others
