"""E-values and bit scores of gapped local alignments.

Scores of unrelated sequences follow a Gumbel distribution whose parameters are known for a number of matrices
and gap costs (msa/profile/gumbel_tables.py). An alignment cannot begin near the end of a sequence and
still score high: the search space is corrected for that by the finite-size correction of Park, Sheetlin, Ma,
Madden & Spouge (BMC Research Notes 5:286, 2012), with the parameters that blastp uses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from msa.profile.gumbel_tables import TABLES
from msa.profile.matrices import DEFAULT

_LN2 = math.log(2.0)


@dataclass(frozen=True)
class GumbelParameters:
    """What the score distribution of one matrix and gap cost depends on.

    Args:
        lambda_: decay of the tail, nats per unit of score.
        k: Karlin and Altschul's K.
        a, alpha, sigma: growth with the score of the mean length of an alignment, its variance, and the
            covariance of its lengths in query and target.
        gap: cost of a gap's first residue in the convention of the published table, existence + extension.
        ungapped_a, ungapped_alpha: a and α (σ is the same) without gaps.
    """

    lambda_: float
    k: float
    a: float
    alpha: float
    sigma: float
    gap: int
    ungapped_a: float
    ungapped_alpha: float

    @property
    def b(self) -> float:
        """Intercept that belongs to `a`."""
        return 2.0 * self.gap * (self.ungapped_a - self.a)

    @property
    def beta(self) -> float:
        """Intercept that belongs to `alpha`."""
        return 2.0 * self.gap * (self.ungapped_alpha - self.alpha)

    @property
    def tau(self) -> float:
        """Intercept that belongs to `sigma`."""
        return 2.0 * self.gap * (self.ungapped_alpha - self.sigma)


_CHANCE_OF_EXCESS = 0.2
"""Share of chance pairs whose scores against the reversed profile are held against them."""
_LEAST_PAIRS = math.exp(9.0)
"""However short the two are, λ S has to exceed the logarithm of this: 33.7 half-bits with gap costs 11/1."""


def gumbel_parameters(gap_open: int, gap_extend: int, matrix: str = DEFAULT) -> GumbelParameters:
    """The parameters of a matrix with these gap costs.

    Raises:
        ValueError: there is no such matrix, or there are none for these gap costs.
    """
    if matrix not in TABLES:
        raise ValueError(f"there is no matrix {matrix!r}; there are {', '.join(TABLES)}")
    table = TABLES[matrix]
    if (gap_open, gap_extend) not in table.gapped:
        known = ", ".join(f"{o}/{e}" for o, e in sorted(table.gapped))
        raise ValueError(
            f"no E-value statistics for {matrix} with gap costs {gap_open}/{gap_extend}; there are {known}"
        )
    return GumbelParameters(*table.gapped[gap_open, gap_extend], gap_open + gap_extend, table.a, table.alpha)


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
    # numba takes a third of a second to import
    from msa.profile.search_space import expected_numbers

    p = parameters
    expected = np.empty(len(scores))
    expected_numbers(
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
    times: int = 1,
) -> np.ndarray:
    """Scores less what composition, periods and symmetry of the two sequences explain.

    Read backwards, a query has the same composition and the same repeats, and no relatives: what a target
    scores against it beyond what one in five chance pairs of these lengths reach is taken off (the reverse
    null model of Karplus, Karchin, Shackelford & Hughey, Bioinformatics 21:4107, 2005, above a threshold).

    Args:
        scores: int [n], raw scores, half-bits.
        reversed_scores: int [n], of the same targets against the reversed profile.
        query_length, target_lengths: residues; int [n].
        parameters: see GumbelParameters.
        times: how often that is taken off.

    Returns:
        int [n], half-bits, 0 to `scores`.
    """
    pairs = np.maximum(parameters.k * query_length * target_lengths / _CHANCE_OF_EXCESS, _LEAST_PAIRS)
    usual = np.ceil(_each(math.log, pairs) / parameters.lambda_).astype(np.int64)
    return np.maximum(scores - times * np.maximum(reversed_scores - usual, 0), 0)


def evalue(
    score: int, query_length: int, target_length: int, database_residues: int, parameters: GumbelParameters
) -> float:
    """The E-value of one alignment, as `evalues`."""
    one = np.array([score]), query_length, np.array([target_length])
    return float(evalues(*one, database_residues, parameters)[0])


def _each(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    """A function of math for every number: numpy's may differ in the last bit."""
    return np.fromiter(map(function, values.tolist()), np.float64, len(values))
