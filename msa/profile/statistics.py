"""E-values and bit scores of gapped local alignments.

Scores of unrelated sequences follow a Gumbel distribution with the parameters of msa/profile/gumbel.py. An
alignment that starts near the end of a sequence is too short for a high score, so the search space is
corrected for finite lengths as in blastp (Park, Sheetlin, Ma, Madden & Spouge, BMC Research Notes 5:286,
2012).

The compiled formulas are imported, with numba, only once many values are needed: one query needs few, and
importing numba takes as long as computing them.
"""

import math
from collections.abc import Callable

import numpy as np

from msa.profile.gumbel import GumbelParameters

_LN2 = math.log(2.0)
_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)

CHANCE_FRACTION = 0.2
"""Fraction of chance pairs whose reversed-profile score exceeds the threshold of the correction."""
_MIN_PAIR_COUNT = 0.2 * math.exp(9.0)
"""Lower limit of the pair count in this threshold, which makes it ≥ 33.7 half-bits for gap costs 11/1 and one
in five chance pairs."""

_MAX_INTERPRETED = 1_000_000
"""Number of values that a process computes without numba, which takes about as long as importing numba."""
_ROUNDING = 1 - 1e-9
"""Factor that makes lower bounds of E-values smaller than their rounding errors."""
MAX_TABULATED_SCORE = 255
"""Largest score in the result of `longest_targets`; hardly any threshold requires more."""
_ANY_LENGTH = 2**31


def bit_scores(scores: np.ndarray, parameters: GumbelParameters) -> np.ndarray:
    """Convert raw scores to bits, float64: (λ S − ln K) / ln 2."""
    return (parameters.lambda_ * scores - math.log(parameters.k)) / _LN2


def evalues(
    scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    database_residues: int,
    parameters: GumbelParameters,
    max_evalue: float = math.inf,
) -> np.ndarray:
    """Compute the expected number of chance alignments with at least each score in the whole database.

    Args:
        scores: int [n], raw scores.
        query_length: residues.
        target_lengths: int [n], residues.
        database_residues: residues of the whole database, even if only a part of it is searched.
        parameters: see GumbelParameters.
        max_evalue: larger E-values may be returned as infinity, which saves computing them.

    Returns:
        float64 [n], ≥ 0.
    """
    if max_evalue < math.inf:
        # only few candidates of a search have a lower bound up to the limit
        bounds = _evalue_lower_bounds(scores, query_length, target_lengths, database_residues, parameters)
        expected, small = np.full(len(scores), math.inf), np.flatnonzero(bounds <= max_evalue)
        expected[small] = evalues(
            scores[small], query_length, target_lengths[small], database_residues, parameters
        )
        return expected
    arrays = scores.astype(np.int64), query_length, target_lengths.astype(np.int64), database_residues
    if not _interpreted_budget.take(len(scores)):
        from msa.profile import compiled_statistics  # imports numba

        p, expected = parameters, np.empty(len(scores))
        numbers = p.lambda_, p.k, p.a, p.b, p.alpha, p.beta, p.sigma, p.tau
        compiled_statistics.fill_evalues(*arrays, numbers, expected)
        return expected
    return _interpreted_evalues(*arrays, parameters)


def corrected_scores(
    scores: np.ndarray,
    reversed_scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    parameters: GumbelParameters,
    weight: int = 1,
) -> np.ndarray:
    """Subtract the part of each score that is due to composition, periodicity and symmetry.

    Args:
        scores: int [n], raw scores.
        reversed_scores: see `reversed_excess`.
        query_length: residues.
        target_lengths: int [n], residues.
        parameters: see GumbelParameters.
        weight: factor of the subtracted part.

    Returns:
        int [n], from 0 to `scores`.
    """
    excess = weight * reversed_excess(reversed_scores, query_length, target_lengths, parameters)
    return np.maximum(scores.astype(np.int64) - excess, 0)


def reversed_excess(
    reversed_scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    parameters: GumbelParameters,
    chance_fraction: float = CHANCE_FRACTION,
) -> np.ndarray:
    """Compute the part of each score that is due to composition, periodicity and symmetry.

    The reversed query has the same composition and repeats but no homologs. It is the part of a target's
    score against the reversed query above a threshold that few chance pairs of these lengths exceed. This is
    the reverse null model of Karplus, Karchin, Shackelford & Hughey (Bioinformatics 21:4107, 2005), with a
    threshold added.

    Args:
        reversed_scores: int [n], raw scores of the targets against the reversed profile.
        query_length: residues.
        target_lengths: int [n], residues.
        parameters: see GumbelParameters.
        chance_fraction: fraction of chance pairs whose score exceeds the threshold.

    Returns:
        int [n], ≥ 0.
    """
    k_times_length, lambda_ = parameters.k * query_length, parameters.lambda_
    excess = np.zeros(len(reversed_scores), np.int64)
    # hardly any score exceeds the smallest threshold
    smallest = math.floor(math.log(_MIN_PAIR_COUNT / chance_fraction) / lambda_)
    high = np.flatnonzero(reversed_scores > smallest)
    reversed_scores, target_lengths = reversed_scores[high], target_lengths[high]
    if not _interpreted_budget.take(len(reversed_scores)):
        from msa.profile import compiled_statistics  # imports numba

        thresholds = np.empty(len(reversed_scores), np.int64)
        compiled_statistics.fill_thresholds(
            k_times_length, target_lengths, _MIN_PAIR_COUNT, chance_fraction, lambda_, thresholds
        )
    else:
        pairs = np.maximum(k_times_length * target_lengths, _MIN_PAIR_COUNT) / chance_fraction
        thresholds = np.array([math.ceil(math.log(each) / lambda_) for each in pairs.tolist()], np.int64)
    excess[high] = np.maximum(reversed_scores.astype(np.int64) - thresholds, 0)
    return excess


def longest_targets(
    query_length: int, database_residues: int, parameters: GumbelParameters, max_evalue: float
) -> np.ndarray:
    """Return how long a target may be that reaches a score by chance less often than a limit.

    The longer a target, the larger the E-value of a score.

    Args:
        query_length: see `evalues`.
        database_residues: see `evalues`.
        parameters: see `evalues`.
        max_evalue: the limit.

    Returns:
        int64 [MAX_TABULATED_SCORE + 1], by score: longer targets have larger E-values, shorter ones may have.
        The last number applies to all higher scores, too.
    """
    p, scores = parameters, np.arange(MAX_TABULATED_SCORE + 1)
    mean_lengths = p.a * scores + p.b
    # the lower bound of the E-value is this, times the share of the target that such an alignment leaves
    limits = _ROUNDING * np.maximum(query_length - mean_lengths, 0.0) * p.k * np.exp(-p.lambda_ * scores)
    limits *= _ROUNDING * database_residues
    exceeding = limits > max_evalue
    lengths = np.full(len(scores), _ANY_LENGTH)
    shares = limits[exceeding] / (limits[exceeding] - max_evalue)
    lengths[exceeding] = np.clip(np.ceil(shares * mean_lengths[exceeding]), 0, _ANY_LENGTH).astype(np.int64)
    lengths[-1] = _ANY_LENGTH
    return lengths


def _evalue_lower_bounds(
    scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    residues: int,
    parameters: GumbelParameters,
) -> np.ndarray:
    """Return lower bounds of E-values, float64 [n].

    The expected number of start positions is at least the residues that an alignment of mean length leaves.
    """
    p = parameters
    mean_lengths = p.a * scores + p.b
    query_starts = np.maximum(query_length - mean_lengths, 0.0)
    target_starts = np.maximum(target_lengths - mean_lengths, 0.0)
    areas = _ROUNDING * query_starts * target_starts
    return areas * p.k * np.exp(-p.lambda_ * scores) * residues / target_lengths


def _interpreted_evalues(
    scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    residues: int,
    parameters: GumbelParameters,
) -> np.ndarray:
    """Compute E-values without numba.

    In either sequence, an alignment with score y covers a normally distributed number of residues with mean
    a y + b and variance α y + β; the covariance of the two numbers is σ y + τ. The residues not covered are
    the possible start positions.

    numpy's exponential function differs from the C library's, which compiled code calls, in the last bit.
    """
    p = parameters
    mean_lengths = p.a * scores + p.b
    deviations = np.sqrt(np.maximum(2.0 * p.alpha / p.lambda_, p.alpha * scores + p.beta))
    covariances = np.maximum(2.0 * p.sigma / p.lambda_, p.sigma * scores + p.tau)
    query_starts, query_fits = _start_positions(query_length, mean_lengths, deviations)
    target_starts, target_fits = _start_positions(target_lengths, mean_lengths, deviations)
    areas = query_starts * target_starts + covariances * query_fits * target_fits
    return areas * p.k * _map(math.exp, -p.lambda_ * scores) * residues / target_lengths


def _start_positions(
    lengths: np.ndarray | int, mean_lengths: np.ndarray, deviations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected number of start positions, and the probability that the alignment fits."""
    free = lengths - mean_lengths
    z = free / deviations
    fits = 0.5 * _map(math.erfc, -z / _ROOT_OF_2)
    densities = _map(math.exp, -0.5 * z * z) / _ROOT_OF_2_PI
    return free * fits + deviations * densities, fits


def _map(function: Callable[[float], float], arguments: np.ndarray) -> np.ndarray:
    """Apply a function of Python's math module, which calls the C library, to each number."""
    return np.array(list(map(function, arguments.tolist())))


class _InterpretedBudget:
    """The budget of values that this process computes without numba."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, count: int) -> bool:
        """Count further values, and return whether the budget suffices for them."""
        self._count += count
        return self._count <= _MAX_INTERPRETED


_interpreted_budget = _InterpretedBudget()
