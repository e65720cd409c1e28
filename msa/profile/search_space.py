"""Expected numbers of chance alignments, compiled: a search asks for them often, for each candidate."""

import math

from msa.jit import kernel

_ROOT_OF_2, _ROOT_OF_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@kernel
def expected_numbers(scores, query_length, target_lengths, residues, parameters, expected):  # type: ignore[no-untyped-def]
    """E-values; see `msa.profile.statistics.evalues`.

    An alignment of score y takes up a normally distributed number of residues, mean a y + b and variance
    α y + β in either sequence, covariance σ y + τ; what is left of each sequence is room to start in.

    Args:
        scores, target_lengths: int64 [n].
        query_length, residues: int.
        parameters: λ, K, a, b, α, β, σ, τ.
        expected: float64 [n], written.
    """
    lambda_, k, a, b, alpha, beta, sigma, tau = parameters
    for i in range(len(scores)):
        score = scores[i]
        taken = a * score + b
        spread = math.sqrt(max(2.0 * alpha / lambda_, alpha * score + beta))
        covariance = max(2.0 * sigma / lambda_, sigma * score + tau)
        query_room, query_fits = _room(query_length, taken, spread)
        target_room, target_fits = _room(target_lengths[i], taken, spread)
        area = query_room * target_room + covariance * query_fits * target_fits
        expected[i] = area * k * math.exp(-lambda_ * score) * residues / target_lengths[i]


@kernel
def _room(length, taken, spread):  # type: ignore[no-untyped-def]
    """Expected number of places to start in, and the probability that the alignment fits in."""
    left = length - taken
    z = left / spread
    fits = 0.5 * math.erfc(-z / _ROOT_OF_2)
    density = math.exp(-0.5 * z * z) / _ROOT_OF_2_PI
    return left * fits + spread * density, fits
