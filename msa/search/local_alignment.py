"""A local alignment of two sequences, as every engine returns it."""

from typing import NamedTuple

import numpy as np

OPERATIONS = "MID"
"""Path operations by their code in a run: pair, query residue against a gap, target residue against a gap."""


class LocalAlignment(NamedTuple):
    """The best local alignment of the query and one target; a tuple, as a search makes very many.

    Args:
        score: half-bits, ≥ 0; at 0 all else is 0 or empty.
        query_start, query_end, target_start, target_end: positions from 1, inclusive.
        identities: aligned pairs of equal residues, X apart.
        columns: aligned pairs and gap residues.
        runs: int32 [runs], first to last: length · 4 + index in OPERATIONS.
    """

    score: int
    query_start: int
    query_end: int
    target_start: int
    target_end: int
    identities: int
    columns: int
    runs: np.ndarray

    @property
    def operations(self) -> list[tuple[int, str]]:
        """(length, one of OPERATIONS) of each run."""
        return [(run >> 2, OPERATIONS[run & 3]) for run in self.runs.tolist()]

    @property
    def cigar(self) -> str:
        """Such as 10M2D5M: M pairs, I query residues against a gap, D target residues against a gap."""
        return "".join(f"{length}{operation}" for length, operation in self.operations)


NO_ALIGNMENT = LocalAlignment(0, 0, 0, 0, 0, 0, 0, np.empty(0, np.int32))
"""Of sequences without a pair of residues that scores more than 0."""
