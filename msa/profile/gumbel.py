"""Gumbel parameters of local alignment scores, by substitution matrix and gap costs.

The tables of BLOSUM and PAM matrices are NCBI's (src/algo/blast/core/blast_stat.c, public domain). Gap
costs are named as in blastp: existence and extension. The table of VTML80 was computed by
benchmarks/gumbel_parameters.py. Default gap costs are those that NCBI recommends for each matrix, and for
VTML80 those of Pearson (Curr. Protoc. Bioinformatics 43:3.5.1, 2013).

The tables of CONTEXT and RNA were computed by the same script, for sequences and the search's own gap costs,
where the first residue of a gap costs `gap open`. For family profiles, whose scores are on BLOSUM62's scale,
BLOSUM62's table is used.
"""

from dataclasses import dataclass

from msa.profile.matrices import BLOSUM62, CONTEXT, RNA


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


GUMBEL_TABLES = {
    CONTEXT: GumbelTable(
        ungapped_lambda=0.3176,
        ungapped_a=1.1494,
        ungapped_alpha=10.2583,
        default_gap_costs=(12, 1),
        gapped={
            (11, 2): (0.2591, 0.0388, 2.552, 92.704, 92.349),
            (10, 2): (0.2374, 0.0254, 3.244, 145.162, 144.613),
            (13, 1): (0.2625, 0.0379, 2.602, 94.305, 93.231),
            (12, 1): (0.2410, 0.0236, 3.660, 198.896, 196.952),
        },
    ),
    "BLOSUM62": GumbelTable(
        ungapped_lambda=0.3176,
        ungapped_a=0.7916,
        ungapped_alpha=4.964660,
        default_gap_costs=(11, 1),
        gapped={
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
        },
    ),
    "BLOSUM45": GumbelTable(
        ungapped_lambda=0.2291,
        ungapped_a=0.9113,
        ungapped_alpha=9.611060,
        default_gap_costs=(14, 2),
        gapped={
            (13, 3): (0.207, 0.049, 1.5, 35.8559, 35.9639),
            (12, 3): (0.199, 0.039, 1.8, 45.6936, 45.8517),
            (11, 3): (0.190, 0.031, 2.0, 62.8741, 63.1037),
            (10, 3): (0.179, 0.023, 2.4, 88.2868, 88.6391),
            (16, 2): (0.210, 0.051, 1.5, 36.2798, 36.4524),
            (15, 2): (0.203, 0.041, 1.7, 44.8257, 45.0604),
            (14, 2): (0.195, 0.032, 1.9, 60.7362, 61.1023),
            (13, 2): (0.185, 0.024, 2.2, 85.1481, 85.6894),
            (12, 2): (0.171, 0.016, 2.8, 127.758, 128.582),
            (19, 1): (0.205, 0.040, 1.9, 53.0714, 53.8282),
            (18, 1): (0.198, 0.032, 2.0, 72.3424, 73.4039),
            (17, 1): (0.189, 0.024, 2.4, 103.055, 104.721),
            (16, 1): (0.176, 0.016, 2.8, 170.100, 173.003),
        },
    ),
    "BLOSUM50": GumbelTable(
        ungapped_lambda=0.2318,
        ungapped_a=0.6895,
        ungapped_alpha=5.388310,
        default_gap_costs=(13, 2),
        gapped={
            (13, 3): (0.212, 0.063, 1.1, 18.1138, 18.2028),
            (12, 3): (0.206, 0.055, 1.2, 22.6546, 22.7777),
            (11, 3): (0.197, 0.042, 1.4, 29.8611, 30.0457),
            (10, 3): (0.186, 0.031, 1.7, 42.3938, 42.6740),
            (9, 3): (0.172, 0.022, 2.1, 66.0696, 66.5164),
            (16, 2): (0.215, 0.066, 1.05, 17.9518, 18.0921),
            (15, 2): (0.210, 0.058, 1.2, 21.9401, 22.1418),
            (14, 2): (0.202, 0.045, 1.4, 28.6812, 28.9619),
            (13, 2): (0.193, 0.035, 1.6, 42.0595, 42.4716),
            (12, 2): (0.181, 0.025, 1.9, 63.7476, 64.3973),
            (19, 1): (0.212, 0.057, 1.2, 26.3112, 26.9233),
            (18, 1): (0.207, 0.050, 1.4, 34.9037, 35.7348),
            (17, 1): (0.198, 0.037, 1.6, 48.8958, 50.1486),
            (16, 1): (0.186, 0.025, 1.9, 76.4691, 78.4430),
            (15, 1): (0.171, 0.015, 2.7, 140.053, 144.160),
        },
    ),
    "BLOSUM80": GumbelTable(
        ungapped_lambda=0.3430,
        ungapped_a=0.5222,
        ungapped_alpha=1.918130,
        default_gap_costs=(10, 1),
        gapped={
            (25, 2): (0.342, 0.17, 0.52, 1.7310, 1.7313),
            (13, 2): (0.336, 0.15, 0.59, 2.67347, 2.6923),
            (9, 2): (0.319, 0.11, 0.76, 5.57609, 5.66786),
            (8, 2): (0.308, 0.090, 0.89, 7.53695, 7.68623),
            (7, 2): (0.293, 0.070, 1.1, 11.5866, 11.8404),
            (6, 2): (0.268, 0.045, 1.4, 19.9581, 20.4412),
            (11, 1): (0.314, 0.095, 0.90, 8.80861, 9.22332),
            (10, 1): (0.299, 0.071, 1.1, 13.8338, 14.5334),
            (9, 1): (0.279, 0.048, 1.4, 24.2520, 25.4904),
        },
    ),
    "BLOSUM90": GumbelTable(
        ungapped_lambda=0.3346,
        ungapped_a=0.4434,
        ungapped_alpha=1.377760,
        default_gap_costs=(10, 1),
        gapped={
            (9, 2): (0.310, 0.12, 0.67, 4.23229, 4.33417),
            (8, 2): (0.300, 0.099, 0.76, 5.79702, 5.96142),
            (7, 2): (0.283, 0.072, 0.93, 9.04088, 9.3216),
            (6, 2): (0.259, 0.048, 1.2, 16.0244, 16.5316),
            (11, 1): (0.302, 0.093, 0.78, 7.14325, 7.61919),
            (10, 1): (0.290, 0.075, 1.04, 11.4839, 12.2698),
            (9, 1): (0.265, 0.044, 1.3, 21.4083, 22.8409),
        },
    ),
    RNA: GumbelTable(
        ungapped_lambda=0.1484,
        ungapped_a=0.4878,
        ungapped_alpha=3.0004,
        default_gap_costs=(24, 4),
        gapped={
            (24, 4): (0.1256, 0.0548, 0.929, 18.442, 18.296),
            (23, 4): (0.1214, 0.0465, 1.144, 35.941, 35.718),
        },
    ),
    "PAM30": GumbelTable(
        ungapped_lambda=0.3400,
        ungapped_a=0.1938,
        ungapped_alpha=0.161818,
        default_gap_costs=(9, 1),
        gapped={
            (7, 2): (0.305, 0.15, 0.35, 1.01401, 1.16273),
            (6, 2): (0.287, 0.11, 0.42, 1.68806, 1.95143),
            (5, 2): (0.264, 0.079, 0.59, 3.37701, 3.87195),
            (10, 1): (0.309, 0.15, 0.35, 1.37205, 1.78877),
            (9, 1): (0.294, 0.11, 0.48, 2.46392, 3.18615),
            (8, 1): (0.270, 0.072, 0.68, 5.36813, 6.76348),
        },
    ),
    "PAM70": GumbelTable(
        ungapped_lambda=0.3345,
        ungapped_a=0.3250,
        ungapped_alpha=0.633439,
        default_gap_costs=(10, 1),
        gapped={
            (8, 2): (0.301, 0.12, 0.56, 2.88165, 3.02571),
            (7, 2): (0.286, 0.093, 0.67, 4.53454, 4.78578),
            (6, 2): (0.264, 0.064, 0.90, 7.94263, 8.40272),
            (11, 1): (0.305, 0.12, 0.59, 3.6814, 4.10802),
            (10, 1): (0.291, 0.091, 0.71, 6.00297, 6.71657),
            (9, 1): (0.270, 0.060, 0.97, 11.3608, 12.6367),
        },
    ),
    "VTML80": GumbelTable(
        ungapped_lambda=0.3352,
        ungapped_a=0.3605,
        ungapped_alpha=0.8313,
        default_gap_costs=(10, 1),
        gapped={
            (10, 2): (0.3188, 0.1540, 0.494, 2.507, 2.462),
            (9, 2): (0.3120, 0.1369, 0.557, 3.499, 3.437),
            (8, 2): (0.3020, 0.1160, 0.640, 4.447, 4.306),
            (7, 2): (0.2868, 0.0898, 0.776, 7.221, 6.997),
            (12, 1): (0.3151, 0.1393, 0.535, 3.832, 3.648),
            (11, 1): (0.3059, 0.1160, 0.671, 6.991, 6.685),
            (10, 1): (0.2925, 0.0903, 0.854, 11.457, 10.835),
            (9, 1): (0.2719, 0.0614, 1.114, 19.751, 18.494),
        },
    ),
}
"""Published parameters by matrix name; the default matrix comes first."""
