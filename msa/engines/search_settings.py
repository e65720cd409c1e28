"""The settings of a search."""

import math
from dataclasses import dataclass
from typing import Literal

from msa.base.errors import InputError, check_range
from msa.io import molecules
from msa.profile.gumbel import GUMBEL_TABLES, family_matrix, gumbel_parameters
from msa.profile.matrices import CONTEXT, RNA

MIN_CANDIDATES = 10_000
"""Number of targets that are aligned, if as many pass the gapless filter and `max_seqs` is not larger. It is
large because the filter ranks some relatives behind thousands of unrelated targets."""

_INT32_MAX = 2**31 - 1
MAX_SEQS = _INT32_MAX
"""Largest value of `SearchSettings.max_seqs`."""

_SEARCH_RANGES = {
    "evalue": (0, math.inf),
    "max_seqs": (1, MAX_SEQS),
    "min_ungapped_score": (0, _INT32_MAX),
    "min_seq_id": (0, 1),
    "coverage": (0, 1),
    "cov_mode": (0, 2),
    "num_iterations": (1, _INT32_MAX),
    "e_profile": (0, math.inf),
    "threads": (1, _INT32_MAX),
}


def default_gap_costs(matrix: str) -> tuple[int, int, int]:
    """Return `gap_open`, `gap_extend` and `profile_gap_open` of a matrix.

    Gaps cost less with a family profile, which predicts the positions of gaps better than a single sequence.
    For an unknown matrix, the costs of the default matrix are returned; SearchSettings reports the error.
    """
    matrix = matrix if matrix in GUMBEL_TABLES else CONTEXT
    gap_open, gap_extend = GUMBEL_TABLES[matrix].default_gap_costs
    return gap_open, gap_extend, GUMBEL_TABLES[family_matrix(matrix)].default_gap_costs[0] - 1


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Args:
        evalue: largest E-value of a hit.
        max_seqs: maximum number of hits of a query; for a long query, of each region (see
            msa.search.windows). In a clustered database, only cluster representatives count.
        min_ungapped_score: smallest gapless score that passes the filter.
        matrix: substitution matrix, or CONTEXT for scores that depend on the neighbours of a residue; defines
            the unit of scores and gap costs, half-bits for the default.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue.
        profile_gap_open: `gap_open` of searches with a family profile.
        comp_bias_corr: correct scores for composition and repeats.
        min_seq_id: smallest fraction of identical residue pairs among the alignment's columns.
        coverage: smallest fraction of residues between the alignment's ends.
        cov_mode: coverage of query and target (0), of the target (1), of the query (2).
        num_iterations: number of search iterations; from the second on, family profiles are searched.
        e_profile: largest E-value of a target that becomes part of the family profile.
        threads: CPU threads. Does not affect the result.

    Raises:
        InputError: a number is out of range, the matrix is unknown, or there are no E-value statistics for it
            with these gap costs.
    """

    evalue: float = 1e-3
    max_seqs: int = 300
    min_ungapped_score: int = 15
    matrix: str = CONTEXT
    gap_open: int = 12
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
        for name, bounds in _SEARCH_RANGES.items():
            check_range(name, getattr(self, name), bounds)
        try:
            gumbel_parameters(self.gap_open, self.gap_extend, self.matrix)
            if self.num_iterations > 1:
                gumbel_parameters(self.profile_gap_open, self.gap_extend, family_matrix(self.matrix))
        except ValueError as error:
            raise InputError(str(error)) from None

    @property
    def molecule(self) -> Literal["protein", "rna"]:
        """Kind of the queries and targets."""
        return molecules.RNA if self.matrix == RNA else molecules.PROTEIN

    @property
    def max_candidates(self) -> int:
        """Maximum number of targets that pass from the gapless filter to the alignment."""
        return max(self.max_seqs, MIN_CANDIDATES)

    @property
    def corrects_alignments(self) -> bool:
        """True if the alignments of sequences are corrected for composition, and not their profiles.

        Iterated searches correct profiles, because these give better families (see docs/sensitivity.md).
        """
        return self.comp_bias_corr and self.num_iterations == 1

    @property
    def has_thresholds(self) -> bool:
        """True if hits need a minimum identity or coverage."""
        return self.min_seq_id > 0 or self.coverage > 0


FOLDING_SEARCH = SearchSettings(evalue=0.1, max_seqs=10_000, num_iterations=3)
"""Defaults of searches for alignments to fold: E-value, number of targets and iterations are those of
ColabFold's `colabfold_search` (colabfold/mmseqs/search.py)."""
