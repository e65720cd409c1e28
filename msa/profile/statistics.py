"""E-values and bit scores of gapped local alignments.

Scores of unrelated sequences follow a Gumbel distribution with the parameters of msa/profile/gumbel.py. An
alignment that starts near the end of a sequence is too short for a high score, so the search space is
corrected for finite lengths as in blastp (Park, Sheetlin, Ma, Madden & Spouge, BMC Research Notes 5:286,
2012).
"""

import math

import numpy as np

from msa.jit import kernel
from msa.profile.gumbel import GumbelParameters

_LN2 = math.log(2.0)
_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)

_CHANCE_FRACTION = 0.2
"""Fraction of chance pairs whose reversed-profile score exceeds the threshold of the correction."""
_MIN_PAIR_COUNT = math.exp(9.0)
"""Lower limit of the pair count in this threshold, which makes it ≥ 33.7 half-bits for gap costs 11/1."""


def bit_scores(scores: np.ndarray, parameters: GumbelParameters) -> np.ndarray:
    """Convert raw scores to bits, float64: (λ S − ln K) / ln 2."""
    return (parameters.lambda_ * scores - math.log(parameters.k)) / _LN2


def evalues(
    scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    database_residues: int,
    parameters: GumbelParameters,
) -> np.ndarray:
    """Compute the expected number of chance alignments with at least each score in the whole database.

    Args:
        scores: int [n], raw scores.
        query_length: residues.
        target_lengths: int [n], residues.
        database_residues: residues of the whole database, even if only a part of it is searched.
        parameters: see GumbelParameters.

    Returns:
        float64 [n], ≥ 0.
    """
    p = parameters
    expected = np.empty(len(scores))
    _fill_evalues(
        scores.astype(np.int64), query_length, target_lengths.astype(np.int64), database_residues,
        (p.lambda_, p.k, p.a, p.b, p.alpha, p.beta, p.sigma, p.tau), expected,
    )  # fmt: skip
    return expected


def corrected_scores(
    scores: np.ndarray,
    reversed_scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    parameters: GumbelParameters,
    weight: int = 1,
) -> np.ndarray:
    """Subtract the part of each score that is due to composition, periodicity and symmetry.

    The reversed query has the same composition and repeats but no homologs. If a target's score against it
    exceeds a threshold, the excess is subtracted; one in five chance pairs of these lengths exceeds the
    threshold. This is the reverse null model of Karplus, Karchin, Shackelford & Hughey (Bioinformatics
    21:4107, 2005), with a threshold added.

    Args:
        scores: int [n], raw scores.
        reversed_scores: int [n], raw scores of the same targets against the reversed profile.
        query_length: residues.
        target_lengths: int [n], residues.
        parameters: see GumbelParameters.
        weight: factor of the subtracted part.

    Returns:
        int [n], from 0 to `scores`.
    """
    corrected = np.empty(len(scores), np.int64)
    _fill_corrected_scores(
        scores.astype(np.int64), reversed_scores, parameters.k * query_length, target_lengths,
        parameters.lambda_, weight, corrected,
    )  # fmt: skip
    return corrected


@kernel
def _fill_corrected_scores(  # type: ignore[no-untyped-def]
    scores, reversed_scores, k_times_length, target_lengths, lambda_, weight, corrected
):
    """Write corrected scores to `corrected`; see `corrected_scores`."""
    for i in range(len(scores)):
        pairs = max(k_times_length * target_lengths[i] / _CHANCE_FRACTION, _MIN_PAIR_COUNT)
        threshold = np.int64(math.ceil(math.log(pairs) / lambda_))
        corrected[i] = max(scores[i] - weight * max(reversed_scores[i] - threshold, 0), 0)


@kernel
def _fill_evalues(scores, query_length, target_lengths, residues, parameters, expected):  # type: ignore[no-untyped-def]
    """Write E-values to `expected`; see `evalues`.

    In either sequence, an alignment with score y covers a normally distributed number of residues with mean
    a y + b and variance α y + β; the covariance of the two numbers is σ y + τ. The residues not covered are
    the possible start positions.

    Args:
        scores: int64 [n], raw scores.
        query_length: residues.
        target_lengths: int64 [n], residues.
        residues: residues of the database.
        parameters: λ, K, a, b, α, β, σ, τ.
        expected: float64 [n], written.
    """
    lambda_, k, a, b, alpha, beta, sigma, tau = parameters
    for i in range(len(scores)):
        score = scores[i]
        mean_length = a * score + b
        deviation = math.sqrt(max(2.0 * alpha / lambda_, alpha * score + beta))
        covariance = max(2.0 * sigma / lambda_, sigma * score + tau)
        query_starts, query_fits = _start_positions(query_length, mean_length, deviation)
        target_starts, target_fits = _start_positions(target_lengths[i], mean_length, deviation)
        area = query_starts * target_starts + covariance * query_fits * target_fits
        expected[i] = area * k * math.exp(-lambda_ * score) * residues / target_lengths[i]


@kernel
def _start_positions(length, mean_length, deviation):  # type: ignore[no-untyped-def]
    """Return the expected number of start positions, and the probability that the alignment fits."""
    free = length - mean_length
    z = free / deviation
    fits = 0.5 * math.erfc(-z / _ROOT_OF_2)
    density = math.exp(-0.5 * z * z) / _ROOT_OF_2_PI
    return free * fits + deviation * density, fits
