"""E-values and bit scores of gapped local alignments, and limits of target lengths by score.

Scores of unrelated sequences follow a Gumbel distribution with the parameters of msa/profile/gumbel.py. An
alignment that starts near the end of a sequence is too short for a high score, so the search space is
corrected for finite lengths as in blastp (Park, Sheetlin, Ma, Madden & Spouge, BMC Research Notes 5:286,
2012).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from msa.base.cpu_kernels.jit import kernel
from msa.profile.gumbel import GUMBEL_TABLES, GumbelParameters

_LN2 = math.log(2.0)
_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)

CHANCE_FRACTION = 0.2
"""Fraction of chance pairs whose reversed-profile score exceeds the threshold of the correction."""
_MIN_PAIR_COUNT = 0.2 * math.exp(9.0)
"""Lower limit of the pair count in this threshold, which makes it ≥ 33.7 half-bits for gap costs 11/1 and one
in five chance pairs."""

_ROUNDING = 1 - 1e-9
"""Factor that makes lower bounds of E-values smaller than their rounding errors."""
MAX_TABULATED_SCORE = 255
"""Largest score in the result of `max_target_lengths`; hardly any threshold requires more."""
_ANY_LENGTH = 2**31
_TABULATED_LENGTHS = np.unique(np.ceil(2.0 ** np.arange(0.0, 17.0, 0.25)).astype(np.int64))
"""Lengths of targets between which `max_target_lengths` chooses."""

_GAPLESS_K = 0.134
"""K of gapless scores: NCBI BLAST's for BLOSUM62. That of other matrices is similar."""
_CHANCE_TARGETS, _CHANCE_TARGETS_PER_RESIDUE = 4000, 25
"""Number of targets that reach the limit by chance: at least the first number, more for long queries."""
_FAMILY_FACTOR = 1.5
"""Factor of these numbers for the profile of a family, which finds relatives of lower gapless scores."""
_ANY_INT32_LENGTH = 2**31 - 1


def bit_scores(scores: np.ndarray, parameters: GumbelParameters) -> np.ndarray:
    """Convert raw scores to bits, float64: (λ S − ln K) / ln 2."""
    return (parameters.lambda_ * scores - math.log(parameters.k)) / _LN2


def evalues(
    scores: np.ndarray,
    query_lengths: int | np.ndarray,
    target_lengths: np.ndarray,
    database_residues: int,
    parameters: GumbelParameters,
    k: float | np.ndarray | None = None,
) -> np.ndarray:
    """Compute the expected number of chance alignments with at least each score in the whole database.

    Args:
        scores: int [n], raw scores.
        query_lengths: residues of the query, or int64 [n] of the query of each alignment.
        target_lengths: int [n], residues.
        database_residues: residues of the whole database, even if only a part of it is searched.
        parameters: see GumbelParameters.
        k: replaces K of the parameters; float64 [n] for a K of each alignment.

    Returns:
        float64 [n], ≥ 0.
    """
    count, p = len(scores), parameters
    # a database file that is truncated during the search reads as zeros, until the search notices
    lengths, expected = np.maximum(target_lengths.astype(np.int64), 1), np.empty(count)
    fill_evalues(
        scores.astype(np.int64), _for_each(query_lengths, count, np.int64), lengths,
        _for_each(p.k if k is None else k, count, np.float64), database_residues,
        (p.lambda_, p.a, p.b, p.alpha, p.beta, p.sigma, p.tau), expected,
    )  # fmt: skip
    return expected


@kernel
def fill_evalues(scores, query_lengths, target_lengths, k, residues, parameters, expected):  # type: ignore[no-untyped-def]
    """Write E-values to `expected`; see `msa.profile.statistics.evalues`.

    Args:
        scores: int64 [n], raw scores.
        query_lengths: int64 [n], residues.
        target_lengths: int64 [n], residues.
        k: float64 [n], K.
        residues: residues of the database.
        parameters: λ, a, b, α, β, σ, τ.
        expected: float64 [n], written.
    """
    lambda_, a, b, alpha, beta, sigma, tau = parameters
    for i in range(len(scores)):
        score = scores[i]
        mean_length = a * score + b
        deviation = math.sqrt(max(2.0 * alpha / lambda_, alpha * score + beta))
        covariance = max(2.0 * sigma / lambda_, sigma * score + tau)
        query_starts, query_fits = start_positions(query_lengths[i], mean_length, deviation)
        target_starts, target_fits = start_positions(target_lengths[i], mean_length, deviation)
        area = query_starts * target_starts + covariance * query_fits * target_fits
        expected[i] = area * k[i] * math.exp(-lambda_ * score) * residues / target_lengths[i]


@kernel
def start_positions(length, mean_length, deviation):  # type: ignore[no-untyped-def]
    """Return the expected number of start positions, and the probability that the alignment fits."""
    free = length - mean_length
    z = free / deviation
    fits = 0.5 * math.erfc(-z / _ROOT_OF_2)
    density = math.exp(-0.5 * z * z) / _ROOT_OF_2_PI
    return free * fits + deviation * density, fits


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
    query_lengths: int | np.ndarray,
    target_lengths: np.ndarray,
    parameters: GumbelParameters,
    chance_fractions: float | np.ndarray = CHANCE_FRACTION,
) -> np.ndarray:
    """Compute the part of each score that is due to composition, periodicity and symmetry.

    The reversed query has the same composition and repeats but no homologs. It is the part of a target's
    score against the reversed query above a threshold that few chance pairs of these lengths exceed. This is
    the reverse null model of Karplus, Karchin, Shackelford & Hughey (Bioinformatics 21:4107, 2005), with a
    threshold added.

    Args:
        reversed_scores: int [n], raw scores of the targets against the reversed profile.
        query_lengths: residues of the query, or int64 [n] of the query of each target.
        target_lengths: int [n], residues.
        parameters: see GumbelParameters.
        chance_fractions: fraction of chance pairs whose score exceeds the threshold, or float64 [n] for each
            target.

    Returns:
        int [n], ≥ 0.
    """
    lambda_, excess = parameters.lambda_, np.zeros(len(reversed_scores), np.int64)
    if not len(excess):
        return excess
    # hardly any score exceeds the smallest threshold
    smallest = math.floor(math.log(_MIN_PAIR_COUNT / float(np.max(chance_fractions))) / lambda_)
    high = np.flatnonzero(reversed_scores > smallest)
    k_times_lengths = parameters.k * _for_each(query_lengths, len(excess), np.int64)[high]
    fractions = _for_each(chance_fractions, len(excess), np.float64)[high]
    reversed_scores, target_lengths = reversed_scores[high], target_lengths[high]
    pairs = np.maximum(k_times_lengths * target_lengths, _MIN_PAIR_COUNT) / fractions
    thresholds = np.array([math.ceil(math.log(each) / lambda_) for each in pairs.tolist()], np.int64)
    excess[high] = np.maximum(reversed_scores.astype(np.int64) - thresholds, 0)
    return excess


def length_factors(target_lengths: np.ndarray, reference_lengths: float | np.ndarray) -> np.ndarray:
    """Return the factors that let E-values count targets rather than residues.

    Without them, each residue of a database is equally likely to be found by chance; with them, each target.

    Args:
        target_lengths: int [n], residues.
        reference_lengths: residues of a target whose factor is 1, or float64 [n]; infinite for no factors.

    Returns:
        float64 [n], > 0.
    """
    # a truncated database file reads as zeros
    lengths = np.maximum(target_lengths, 1)
    return np.where(np.isinf(reference_lengths), 1.0, lengths / reference_lengths)


def max_target_lengths(
    query_length: int,
    database_residues: int,
    parameters: GumbelParameters,
    max_evalue: float,
    reference_length: float = math.inf,
) -> np.ndarray:
    """Return upper bounds of the length of a target whose E-value for a score is within a limit.

    The longer a target, the larger the E-value of a score. `reference_length` is that of `length_factors`.

    Returns:
        int64 [MAX_TABULATED_SCORE + 1], by score; the last number applies to all higher scores, too.
    """
    p, scores = parameters, np.arange(MAX_TABULATED_SCORE + 1)
    table = _start_bounds(replace(parameters, k=1.0))
    query_starts = table.in_query(query_length)
    factors = _ROUNDING * query_starts * p.k * np.exp(-p.lambda_ * scores) * database_residues
    shares = table.target_shares * length_factors(_TABULATED_LENGTHS, reference_length)
    exceeding = factors[:, None] * shares > max_evalue
    lengths = np.where(exceeding.any(axis=1), _TABULATED_LENGTHS[exceeding.argmax(axis=1)] - 1, _ANY_LENGTH)
    lengths[-1] = _ANY_LENGTH
    return lengths


def max_filtered_lengths(query_length: int, targets: int, matrix: str, of_family: bool) -> np.ndarray:
    """Return the length up to which a target with a gapless score passes the filter.

    Long targets reach higher scores by chance than short ones: a target of n residues reaches score s with a
    query of m with probability K m n exp(−λ s) (Karlin and Altschul, PNAS 87:2264, 1990). Those whose score
    thousands of targets would reach by chance, given their length, are hardly ever hits
    (docs/sensitivity.md counts them), and would take most of the time of the alignments.

    The limit of a target does not depend on other targets, so it is the same in a part of a split database.

    Args:
        query_length: residues of the query.
        targets: number of targets that are filtered.
        matrix: name of the substitution matrix, the unit of the scores.
        of_family: whether the query is the profile of a family.

    Returns:
        int32 [MAX_TABULATED_SCORE + 1], see `QueryProfile.max_target_lengths`.
    """
    factor = _FAMILY_FACTOR if of_family else 1.0
    chance_targets = factor * max(_CHANCE_TARGETS, _CHANCE_TARGETS_PER_RESIDUE * query_length)
    lengths = chance_targets / (_GAPLESS_K * query_length * max(targets, 1)) * _gapless_growth(matrix)
    # exponentials may differ in the last bit between machines
    longest = np.floor(np.minimum(lengths, _ANY_INT32_LENGTH).round(6))
    return np.append(longest, _ANY_INT32_LENGTH).astype(np.int32)


@functools.cache
def _gapless_growth(matrix: str) -> np.ndarray:
    """Return exp(λ s) of the scores s below the largest one."""
    return np.exp(GUMBEL_TABLES[matrix].ungapped_lambda * np.arange(MAX_TABULATED_SCORE))


@dataclass(frozen=True, eq=False)
class _StartBounds:
    """Lower bounds of the expected number of positions at which an alignment can start.

    Args:
        starts: float64 [scores, tabulated lengths], numbers for sequences of these lengths.
        slopes: float64 [scores, tabulated lengths], their slopes, which are probabilities.
        target_shares: float64 [scores, tabulated lengths], bounds for targets of at least each length, as a
            share of the target's residues; increase along rows.
    """

    starts: np.ndarray
    slopes: np.ndarray
    target_shares: np.ndarray

    def in_query(self, length: int) -> np.ndarray:
        """Return bounds for a sequence, float64 [scores]."""
        column = int(np.searchsorted(_TABULATED_LENGTHS, length, "right")) - 1
        # the number is a convex function of the length, and thus above its tangents
        return self.starts[:, column] + self.slopes[:, column] * (length - _TABULATED_LENGTHS[column])


@functools.lru_cache(8)
def _start_bounds(parameters: GumbelParameters) -> _StartBounds:
    lengths, scores = _TABULATED_LENGTHS, np.arange(MAX_TABULATED_SCORE + 1)
    means, deviations = (each[:, None] for each in _alignment_lengths(scores, parameters))
    starts, slopes = (_ROUNDING * each for each in np.vectorize(start_positions)(lengths, means, deviations))
    # start positions increase with the length, up to the next of which a bound applies
    shares = np.concatenate([starts[:, :-1] / lengths[1:], 1.0 - means / lengths[-1]], axis=1)
    return _StartBounds(starts, slopes, np.minimum.accumulate(shares[:, ::-1], axis=1)[:, ::-1])


def _for_each(value: float | np.ndarray, count: int, dtype: type) -> np.ndarray:
    """Return a number for each of several alignments, [count], given one for all or one for each."""
    return value if isinstance(value, np.ndarray) else np.full(count, value, dtype)


def _alignment_lengths(scores: np.ndarray, parameters: GumbelParameters) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the residues that alignments cover in a sequence, float64 [n].

    With score y, their number has a normal distribution with mean a y + b and variance α y + β.
    """
    p = parameters
    deviations = np.sqrt(np.maximum(2.0 * p.alpha / p.lambda_, p.alpha * scores + p.beta))
    return p.a * scores + p.b, deviations


def apply_elementwise(function: Callable[[float], float], arguments: np.ndarray) -> np.ndarray:
    """Apply a function of Python's math module, which calls the C library, to each number."""
    return np.array(list(map(function, arguments.tolist())))
