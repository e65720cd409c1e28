"""E-values of candidates that include scores with a second matrix.

Context scores find more relatives than a substitution matrix, but not all that the matrix finds. Candidates
near the limit are therefore scored with BLOSUM62 as well. Their E-value becomes the weighted harmonic mean
of both, which controls errors even if tests depend on each other (Wilson, PNAS 116:1195, 2019), times a
factor. docs/sensitivity.md compares other combinations.
"""

import math
from collections.abc import Sequence

import numpy as np

from msa.hits.search_settings import SearchSettings
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.matrices import BLOSUM62, CONTEXT
from msa.profile.pssm import QueryProfile, query_profile

SECOND_MATRIX = BLOSUM62
"""Name of the second matrix."""
_MAX_OTHER_EVALUE = 100.0
"""Largest E-value with the second matrix that counts as evidence."""

_WEIGHT = 0.25
"""Weight of the second E-value."""
_FACTOR = 0.9
"""Factor of the mean. It makes up for candidates whose second E-value is not computed, because the first is
too large."""


def second_parameters(settings: SearchSettings) -> GumbelParameters | None:
    """Return the statistics of the second matrix, or None if a search has none."""
    if settings.matrix != CONTEXT or not settings.corrects_alignments:
        return None
    return gumbel_parameters(settings.gap_open, settings.gap_extend, SECOND_MATRIX)


def second_profile(query: QueryProfile) -> QueryProfile:
    """Return the profile of a query with the second matrix."""
    return QueryProfile(query.codes, query_profile(query.codes, False, SECOND_MATRIX))


def combined_evalues(evalues: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Combine E-values E₁, float64 [n], > 0, with those of the second matrix, E₂ ≥ 0.

    The result is 0.9 / (0.75 / E₁ + 0.25 / E₂), without the second term if E₂ is no evidence.
    """
    return weighted_mean(_FACTOR, (1 - _WEIGHT, _WEIGHT), (evalues, evidence(others)))


def evidence(others: np.ndarray) -> np.ndarray:
    """Return E-values with the second matrix, or infinity for those that are no evidence, float64 [n]."""
    return np.where(others <= _MAX_OTHER_EVALUE, others, math.inf)


def weighted_mean(factor: float, weights: Sequence[float], evalues: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weighted harmonic mean of E-values, float64 [n], ≥ 0, times a factor."""
    # 0 has no inverse
    smallest = np.finfo(np.float64).tiny
    inverse = sum(weight / np.maximum(each, smallest) for weight, each in zip(weights, evalues, strict=True))
    return np.asarray(factor / inverse)
