"""Every example finds its family in demo.fasta, and nothing else scores as well."""

from collections.abc import Iterator

import numpy as np
import pytest
from Bio.Align import Alignment, PairwiseAligner, substitution_matrices

MATCHING_COLUMNS = 0.7  # of the query, in a local alignment


def local_aligner() -> PairwiseAligner:
    """Smith-Waterman with BLOSUM62, a gap of k residues costing 11 + (k - 1)."""
    made = PairwiseAligner(mode="local", substitution_matrix=substitution_matrices.load("BLOSUM62"))
    made.open_gap_score, made.extend_gap_score = -11, -1
    return made


def columns(alignment: Alignment) -> Iterator[tuple[int, int]]:
    """The aligned residue pairs: index in query, index in target."""
    for query_block, target_block in zip(*alignment.aligned, strict=True):
        yield from zip(range(*query_block), range(*target_block), strict=True)


def identity(alignment: Alignment) -> tuple[float, float]:
    """Fraction of identical residues among aligned ones, and fraction of the query aligned."""
    query, target = alignment.sequences
    same = [query[i] == target[j] for i, j in columns(alignment)]
    return float(np.mean(same)), len(same) / len(query)


@pytest.mark.parametrize(
    ("name", "family", "least", "least_identity"),
    [
        ("ubiquitin", "ubiquitin", 15, 0.3),
        ("myoglobin", "globin", 20, 0.22),
        ("lysozyme", "lysozyme", 11, 0.35),
        ("gb1", "protein G", 5, 0.85),
    ],
)
def test_family_is_found(queries, families, name, family, least, least_identity):
    query, local = queries[name].sequence, local_aligner()
    found, scores = 0, {}
    for group, members in families.items():
        for member, sequence in members.items():
            best = local.align(query, sequence)[0]
            scores[group, member] = best.score
            same, covered = identity(best)
            found += group == family and same >= least_identity and covered >= MATCHING_COLUMNS
    assert found >= least
    members = sorted((score for (group, _), score in scores.items() if group == family), reverse=True)
    others = max(score for (group, _), score in scores.items() if group != family)
    assert members[least - 1] > 1.3 * others
