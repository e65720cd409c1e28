"""Gumbel parameters of local alignment scores, by substitution matrix and gap costs.

The tables are in gumbel.json. Those of BLOSUM and PAM matrices are NCBI's
(src/algo/blast/core/blast_stat.c, public domain). Gap costs are named as in blastp: existence and extension.
The table of VTML80 was computed by benchmarks/gumbel_parameters.py. Default gap costs are those that NCBI
recommends for each matrix, and for VTML80 those of Pearson (Curr. Protoc. Bioinformatics 43:3.5.1, 2013).

The table of CONTEXT was computed by the same script, for sequences and the search's own gap costs, where the
first residue of a gap costs `gap open`. For family profiles, whose scores are on BLOSUM62's scale,
BLOSUM62's table is used.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from msa.profile.matrices import BLOSUM62, CONTEXT


@dataclass(frozen=True)
class GumbelTable:
    """The published parameters of one substitution matrix.

    Args:
        ungapped_lambda: λ without gaps, nats per unit of score, for standard residue frequencies.
        ungapped_a: slope of the mean length of ungapped alignments against their score.
        ungapped_alpha: slope of the variance of that length against the score.
        default_gap_costs: gap open and gap extend.
        gapped: (λ, K, a, α, σ) by (gap open, gap extend); see GumbelParameters.
    """

    ungapped_lambda: float
    ungapped_a: float
    ungapped_alpha: float
    default_gap_costs: tuple[int, int]
    gapped: dict[tuple[int, int], tuple[float, float, float, float, float]]


@dataclass(frozen=True)
class GumbelParameters:
    """The parameters of one matrix with given gap costs.

    Args:
        lambda_: decay of the score distribution's tail, nats per unit of score.
        k: Karlin and Altschul's K.
        a: slope of the mean length of alignments against their score.
        alpha: slope of the variance of that length against the score.
        sigma: slope of the covariance of the lengths in query and target against the score.
        gap: cost of a gap's first residue as NCBI defines it: existence + extension.
        ungapped_a, ungapped_alpha: a and α without gaps; σ then equals α.
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
        """Intercept of the mean length, whose slope is `a`."""
        return 2.0 * self.gap * (self.ungapped_a - self.a)

    @property
    def beta(self) -> float:
        """Intercept of the variance, whose slope is `alpha`."""
        return 2.0 * self.gap * (self.ungapped_alpha - self.alpha)

    @property
    def tau(self) -> float:
        """Intercept of the covariance, whose slope is `sigma`."""
        return 2.0 * self.gap * (self.ungapped_alpha - self.sigma)


def gumbel_parameters(gap_open: int, gap_extend: int, matrix: str = BLOSUM62) -> GumbelParameters:
    """Return the parameters of a matrix with given gap costs.

    Raises:
        ValueError: the matrix is unknown, or has no parameters for these gap costs.
    """
    if matrix not in GUMBEL_TABLES:
        raise ValueError(f"unknown matrix {matrix!r}: choose from {', '.join(GUMBEL_TABLES)}")
    table = GUMBEL_TABLES[matrix]
    if (gap_open, gap_extend) not in table.gapped:
        known = ", ".join(f"{o}/{e}" for o, e in sorted(table.gapped))
        raise ValueError(
            f"no E-value statistics for {matrix} with gap costs {gap_open}/{gap_extend}: choose from {known}"
        )
    return GumbelParameters(
        *table.gapped[gap_open, gap_extend], gap_open + gap_extend, table.ungapped_a, table.ungapped_alpha
    )


def family_matrix(matrix: str) -> str:
    """Return the name of the matrix whose parameters are those of family profiles."""
    return BLOSUM62 if matrix == CONTEXT else matrix


def _read_tables() -> dict[str, GumbelTable]:
    content = json.loads(Path(__file__).with_suffix(".json").read_text())
    for table in content.values():
        table["default_gap_costs"] = tuple(table["default_gap_costs"])
        table["gapped"] = {(opening, extend): tuple(rest) for opening, extend, *rest in table["gapped"]}
    return {name: GumbelTable(**table) for name, table in content.items()}


GUMBEL_TABLES = _read_tables()
"""Published parameters by matrix name; the default matrix comes first."""
