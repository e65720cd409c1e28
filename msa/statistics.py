"""E-values and bit scores of gapped local alignments.

Scores of unrelated sequences follow a Gumbel distribution whose parameters NCBI published for BLOSUM62 and a
number of gap costs. An alignment cannot begin near the end of a sequence and still score high: the search
space is corrected for that by the finite-size correction of Park, Sheetlin, Ma, Madden & Spouge (BMC Research
Notes 5:286, 2012), with the parameters that blastp uses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_LN2 = math.log(2.0)


@dataclass(frozen=True)
class GumbelParameters:
    """What the score distribution of one matrix and gap cost depends on.

    Args:
        lambda_: decay of the tail, nats per half-bit.
        k: Karlin and Altschul's K.
        a, alpha, sigma: growth with the score of the mean length of an alignment, its variance, and the
            covariance of its lengths in query and target.
        gap: cost of a gap's first residue in the convention of the published table, existence + extension.
    """

    lambda_: float
    k: float
    a: float
    alpha: float
    sigma: float
    gap: int

    @property
    def b(self) -> float:
        """Intercept that belongs to `a`."""
        return 2.0 * self.gap * (_UNGAPPED_A - self.a)

    @property
    def beta(self) -> float:
        """Intercept that belongs to `alpha`."""
        return 2.0 * self.gap * (_UNGAPPED_ALPHA - self.alpha)

    @property
    def tau(self) -> float:
        """Intercept that belongs to `sigma`."""
        return 2.0 * self.gap * (_UNGAPPED_ALPHA - self.sigma)


_UNGAPPED_A = 0.7916
_UNGAPPED_ALPHA = 4.964660

# (gap open, gap extend): λ, K, a, α, σ for BLOSUM62, as published by NCBI
_BLOSUM62 = {
    (11, 2): (0.297, 0.082, 1.1, 12.6738, 12.7576),
    (10, 2): (0.291, 0.075, 1.3, 16.4740, 16.6026),
    (9, 2): (0.279, 0.058, 1.5, 22.7519, 22.9500),
    (8, 2): (0.264, 0.045, 1.8, 35.4838, 35.8213),
    (7, 2): (0.239, 0.027, 2.5, 61.2383, 61.8860),
    (6, 2): (0.201, 0.012, 3.3, 140.417, 141.882),
    (13, 1): (0.292, 0.071, 1.2, 19.5063, 19.8931),
    (12, 1): (0.283, 0.059, 1.5, 27.8562, 28.4699),
    (11, 1): (0.267, 0.041, 1.9, 42.6028, 43.6362),
    (10, 1): (0.243, 0.024, 2.5, 83.1787, 85.0656),
    (9, 1): (0.206, 0.010, 4.0, 210.333, 214.842),
}
PUBLISHED_GAP_COSTS = tuple(sorted(_BLOSUM62))


def gumbel_parameters(gap_open: int, gap_extend: int) -> GumbelParameters:
    """The published parameters of BLOSUM62 with these gap costs.

    Raises:
        ValueError: nothing is published for them.
    """
    if (gap_open, gap_extend) not in _BLOSUM62:
        known = ", ".join(f"{o}/{e}" for o, e in PUBLISHED_GAP_COSTS)
        raise ValueError(f"no E-value statistics for gap costs {gap_open}/{gap_extend}; there are {known}")
    return GumbelParameters(*_BLOSUM62[gap_open, gap_extend], gap=gap_open + gap_extend)


def bit_scores(scores: np.ndarray, parameters: GumbelParameters) -> np.ndarray:
    """Raw scores (half-bits) to bits: (λ S − ln K) / ln 2, float64."""
    return (parameters.lambda_ * scores - math.log(parameters.k)) / _LN2


def bit_score(score: int, parameters: GumbelParameters) -> float:
    """Raw score (half-bits) to bits, as `bit_scores`."""
    return float(bit_scores(np.array([score]), parameters)[0])


def evalues(
    scores: np.ndarray,
    query_length: int,
    target_lengths: np.ndarray,
    database_residues: int,
    parameters: GumbelParameters,
) -> np.ndarray:
    """Number of alignments with each score or better that chance alone would find in the whole database.

    Args:
        scores: int [n], raw scores, half-bits.
        query_length: residues.
        target_lengths: int [n], residues.
        database_residues: residues of the whole database, whatever part of it is searched.
        parameters: see GumbelParameters.

    Returns:
        float64 [n], expected numbers, ≥ 0.
    """
    area = _search_space(scores, query_length, target_lengths, parameters)
    expected = area * parameters.k * _each(math.exp, -parameters.lambda_ * scores)
    return expected * database_residues / target_lengths


def evalue(
    score: int, query_length: int, target_length: int, database_residues: int, parameters: GumbelParameters
) -> float:
    """The E-value of one alignment, as `evalues`."""
    one = np.array([score]), query_length, np.array([target_length])
    return float(evalues(*one, database_residues, parameters)[0])


def _each(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    """A function of math for every number: numpy has no erfc, and its exp may differ in the last bit."""
    return np.fromiter(map(function, values.tolist()), np.float64, len(values))


def _search_space(scores: np.ndarray, m: int, lengths: np.ndarray, p: GumbelParameters) -> np.ndarray:
    """Expected number of places where alignments of these scores can start, in pairs of lengths m and n.

    An alignment of score y takes up a normally distributed number of residues, mean a y + b and variance
    α y + β in either sequence, covariance σ y + τ; what is left of each sequence is room to start in.
    """
    taken = p.a * scores + p.b
    spread = np.sqrt(np.maximum(2.0 * p.alpha / p.lambda_, p.alpha * scores + p.beta))
    covariance = np.maximum(2.0 * p.sigma / p.lambda_, p.sigma * scores + p.tau)

    def room(length: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = length - taken
        z = left / spread
        fits = 0.5 * _each(math.erfc, -z / math.sqrt(2.0))
        density = _each(math.exp, -0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return left * fits + spread * density, fits

    query_room, query_fits = room(m)
    target_room, target_fits = room(lengths)
    return query_room * target_room + covariance * query_fits * target_fits
