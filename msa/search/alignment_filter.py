"""Thinning an alignment out for folding, with hhfilter's rules: which of its rows to keep.

The rules and their order are those of HH-suite's hhfilter 3.3 (Steinegger et al., BMC Bioinformatics 20:473,
2019): first each row beside the query (coverage, score, identity), then rows beside each other
(msa/search/redundancy.py). docs/search.md says where the results differ.
"""

import math
from dataclasses import dataclass

import numpy as np

from msa.errors import InputError
from msa.search.row_codes import ROW_CODES, UNKNOWN

_RANGES = {
    "max_seq_id": (0, 1),
    "qid": (0, 1),
    "qsc": (-math.inf, math.inf),
    "cov": (0, 1),
    "diff": (0, 2**31 - 1),
}


@dataclass(frozen=True)
class AlignmentFilter:
    """Which rows of an alignment to keep; by default all.

    Args:
        max_seq_id: largest identity of two rows, a fraction of the columns in which both have a residue; the
            one with fewer residues goes.
        qid: smallest identity with the query, a fraction of the row's residues.
        qsc: smallest score with the query, bits a residue; None is none.
        cov: smallest fraction of the query's columns in which the row has a residue.
        diff: rows to be left at least around every column, the most diverse; 0 is no such choice.

    Raises:
        InputError: a number is out of its range.
    """

    max_seq_id: float = 1.0
    qid: float = 0.0
    qsc: float | None = None
    cov: float = 0.0
    diff: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:  # nor is NaN
                raise InputError(f"{name} is {value}: expected {least} to {most}")

    @property
    def active(self) -> bool:
        """Whether any row may have to go."""
        return self != AlignmentFilter()

    def kept(self, rows: np.ndarray, threads: int = 1) -> np.ndarray:
        """The rows to keep.

        Args:
            rows: uint8 [n ≥ 1, columns], letter codes (msa.alphabet), anything else a gap; the query first.
            threads: at least 1; the result does not depend on them.

        Returns:
            bool [n]; the query is always kept, rows without one of the twenty residues never.
        """
        # numba takes a third of a second to import
        from msa.search.redundancy import NONE, distinct_enough

        codes = ROW_CODES[rows]
        allowed = self._like_the_query(codes)
        alone = np.where(codes < UNKNOWN, codes, NONE).astype(np.uint8)
        return distinct_enough(alone, allowed, self.max_percent, self.diff, threads)

    @property
    def max_percent(self) -> float:
        """`max_seq_id` in per cent: 29, not 28.999999999999996."""
        return round(100 * self.max_seq_id, 9)

    def _like_the_query(self, codes: np.ndarray) -> np.ndarray:
        """bool [n], what coverage, score and identity with the query allow."""
        residues = codes < UNKNOWN
        counts = np.count_nonzero(residues, axis=1)
        # the smallest number of residues that is not below the fraction, whatever its last bit
        allowed = counts >= self.cov * codes.shape[1] - 1e-6
        if self.qsc is not None:
            from msa.search.row_scores import scores_with_first

            allowed &= scores_with_first(codes) >= self.qsc * counts
        fraction = np.float32(0.9999 - self.qid)
        if fraction < 0.999:
            differing = np.count_nonzero(residues & (codes != codes[0]), axis=1)
            allowed &= differing < (fraction * counts.astype(np.float32) + 0.9999).astype(np.int64)
        return np.asarray(allowed)
