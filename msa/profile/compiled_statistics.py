"""The formulas of msa/profile/statistics.py, compiled; results are equal in every bit."""

import math

import numpy as np

from msa.jit import kernel

_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@kernel
def fill_evalues(scores, query_length, target_lengths, residues, parameters, expected):  # type: ignore[no-untyped-def]
    """Write E-values to `expected`; see `msa.profile.statistics.evalues`.

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


@kernel
def fill_thresholds(k_times_length, target_lengths, min_pairs, fraction, lambda_, thresholds):  # type: ignore[no-untyped-def]
    """Write the thresholds of reversed-profile scores; see `msa.profile.statistics.reversed_excess`.

    Args:
        k_times_length: K times the query's residues.
        target_lengths: int [n], residues.
        min_pairs: lower limit of the pair count.
        fraction: fraction of chance pairs whose score exceeds the threshold.
        lambda_: λ.
        thresholds: int64 [n], written.
    """
    for i in range(len(target_lengths)):
        pairs = max(k_times_length * target_lengths[i], min_pairs) / fraction
        thresholds[i] = np.int64(math.ceil(math.log(pairs) / lambda_))
