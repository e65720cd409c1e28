"""The limit of gapless scores for targets of each length.

Long targets reach higher scores by chance than short ones. Those whose score thousands of targets would reach
by chance, given their length, are hardly ever hits (docs/sensitivity.md counts them), and would take most of
the time of the alignments.

The limit of a target does not depend on other targets, so it is the same in a part of a split database.
"""

import functools

import numpy as np

from msa.profile.gumbel import GUMBEL_TABLES

_K = 0.134
"""K of gapless scores: NCBI BLAST's for BLOSUM62. That of other matrices is similar."""
_CHANCE_TARGETS, _CHANCE_TARGETS_PER_RESIDUE = 4000, 25
"""Number of targets that reach the limit by chance: at least the first number, more for long queries."""
_FAMILY_FACTOR = 1.5
"""Factor of these numbers for the profile of a family, which finds relatives of lower gapless scores."""
_MAX_SCORE = 255
"""Largest score in the tables; hardly any limit requires more."""
_ANY_LENGTH = 2**31 - 1


def longest_filtered(query_length: int, targets: int, matrix: str, of_family: bool) -> np.ndarray:
    """Return how long a target with a gapless score may be to pass the filter.

    By chance, a target of n residues reaches score s with a query of m with probability K m n exp(−λ s)
    (Karlin and Altschul, PNAS 87:2264, 1990).

    Args:
        query_length: residues of the query.
        targets: number of targets that are filtered.
        matrix: name of the substitution matrix, the unit of the scores.
        of_family: whether the query is the profile of a family.

    Returns:
        int32 [_MAX_SCORE + 1], see `QueryProfile.longest_targets`.
    """
    factor = _FAMILY_FACTOR if of_family else 1.0
    chance_targets = factor * max(_CHANCE_TARGETS, _CHANCE_TARGETS_PER_RESIDUE * query_length)
    lengths = chance_targets / (_K * query_length * max(targets, 1)) * _growth(matrix)
    # exponentials may differ in the last bit between machines
    longest = np.floor(np.minimum(lengths, _ANY_LENGTH).round(6))
    return np.append(longest, _ANY_LENGTH).astype(np.int32)


@functools.cache
def _growth(matrix: str) -> np.ndarray:
    """Return exp(λ s) of the scores s below the largest one."""
    return np.exp(GUMBEL_TABLES[matrix].ungapped_lambda * np.arange(_MAX_SCORE))
