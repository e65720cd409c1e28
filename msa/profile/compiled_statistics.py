"""The formula of E-values, compiled; see msa/profile/statistics.py."""

import math

from msa.base.cpu_kernels.jit import kernel

_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


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
