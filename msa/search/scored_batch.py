"""The aligned candidates of several queries, with their scores and E-values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msa.search.engine import Candidates


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """The aligned candidates of several queries, with corrected scores and E-values.

    Args:
        queries: indices of the queries.
        candidates: of each query, from the engine.
        ends: index after the last candidate of each query.
        owners: int64 [n], index in `queries` of each candidate's query.
        targets: int64 [n].
        raw_scores: int32 [n].
        records: int32 [n, 8], records of the alignments; see AlignmentPaths.
        excess: int64 [n], ≥ 0, subtracted from the scores.
        reversed_excess: int64 [n], the part of it that is due to the reversed profile alone.
        evalues: float64 [n].
        is_member: bool [n], True for candidates that may join the family of their query; all False if there
            are no families.
    """

    queries: Sequence[int]
    candidates: Sequence[Candidates]
    ends: Sequence[int]
    owners: np.ndarray
    targets: np.ndarray
    raw_scores: np.ndarray
    records: np.ndarray
    excess: np.ndarray
    reversed_excess: np.ndarray
    evalues: np.ndarray
    is_member: np.ndarray
