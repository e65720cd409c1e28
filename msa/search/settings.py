"""The settings of a search, which both engines take."""

import math
from dataclasses import dataclass

from msa.errors import InputError
from msa.profile.gumbel_tables import TABLES
from msa.profile.matrices import DEFAULT
from msa.profile.statistics import gumbel_parameters

_MOST = 2**31 - 1
_RANGES = {
    "evalue": (0, math.inf),
    "max_seqs": (1, _MOST),
    "min_ungapped_score": (0, _MOST),
    "min_seq_id": (0, 1),
    "coverage": (0, 1),
    "cov_mode": (0, 2),
    "num_iterations": (1, _MOST),
    "e_profile": (0, math.inf),
    "threads": (1, _MOST),
}


def default_gap_costs(matrix: str) -> tuple[int, int, int]:
    """`gap_open`, `gap_extend` and `profile_gap_open` of a matrix; of the default one if there is none such.

    A profile knows better than a single sequence which residues a gap would skip, and affords cheaper gaps.
    """
    gap_open, gap_extend = TABLES[matrix if matrix in TABLES else DEFAULT].best
    return gap_open, gap_extend, gap_open - 1


@dataclass(frozen=True)
class SearchSettings:
    """What a search depends on, query and database apart.

    Args:
        evalue: largest E-value of a hit.
        max_seqs: targets that pass from the gapless filter to the alignment.
        min_ungapped_score: smallest gapless score that passes, half-bits.
        matrix: substitution matrix; its unit is that of the scores and gap costs, half-bits of the default.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue.
        profile_gap_open: `gap_open` when what is searched with is the profile of a family.
        comp_bias_corr: correct scores for the query's local composition.
        min_seq_id: smallest fraction of identical pairs among the alignment's columns.
        coverage: smallest fraction of residues between the alignment's ends.
        cov_mode: of query and target (0), of the target (1), of the query (2).
        num_iterations: searches, each but the first with the profile of what the one before found.
        e_profile: largest E-value of a target that becomes part of the profile.
        threads: CPU threads; results do not depend on them.

    Raises:
        InputError: a number is out of its range, there is no such matrix, or no E-value statistics for it
            with the gap costs.
    """

    evalue: float = 1e-3
    max_seqs: int = 300
    min_ungapped_score: int = 15
    matrix: str = "BLOSUM62"
    gap_open: int = 11
    gap_extend: int = 1
    profile_gap_open: int = 10
    comp_bias_corr: bool = True
    min_seq_id: float = 0.0
    coverage: float = 0.0
    cov_mode: int = 0
    num_iterations: int = 1
    e_profile: float = 0.1
    threads: int = 1

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:  # nor is NaN
                raise InputError(f"{name} is {getattr(self, name)}: expected {least} to {most}")
        try:
            gumbel_parameters(self.gap_open, self.gap_extend, self.matrix)
            if self.num_iterations > 1:
                gumbel_parameters(self.profile_gap_open, self.gap_extend, self.matrix)
        except ValueError as error:
            raise InputError(str(error)) from None
