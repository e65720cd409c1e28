"""The aligned candidates of several queries, and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from msa.search.engine import Candidates, QueryProfile, all_alignments
from msa.search.pair_statistics import QueryStatistics


@dataclass(frozen=True, eq=False)
class AlignedBatch:
    """The aligned candidates of several queries, and what their scores depend on.

    Args:
        queries: statistics of each query.
        profiles: by index in `queries`, the profiles of those whose alignments are corrected for composition.
        ends: index after the last candidate of each query.
        owners: int64 [n], index in `queries` of each candidate's query.
        targets: int64 [n].
        raw_scores: int32 [n].
        reversed_scores: int32 [n], scores against the reversed profile.
        records: int32 [n, 8], records of the alignments; see AlignmentPaths.
    """

    queries: Sequence[QueryStatistics]
    profiles: Mapping[int, QueryProfile]
    ends: Sequence[int]
    owners: np.ndarray
    targets: np.ndarray
    raw_scores: np.ndarray
    reversed_scores: np.ndarray
    records: np.ndarray

    @classmethod
    def of_candidates(
        cls,
        queries: Sequence[QueryStatistics],
        profiles: Mapping[int, QueryProfile],
        candidates: Sequence[Candidates],
    ) -> "AlignedBatch":
        """Combine the aligned candidates of several queries; arguments as for the class."""
        counts = [len(each.aligned) for each in candidates]
        targets, raw_scores, records = all_alignments(candidates)
        reversed_scores = np.concatenate([each.reversed_scores for each in candidates])
        owners, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts).tolist()
        return cls(queries, profiles, ends, owners, targets, raw_scores, reversed_scores, records)


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a batch of aligned candidates.

    Args:
        excess: int64 [n], ≥ 0, subtracted from the raw scores.
        reversed_excess: int64 [n], the part of it that is due to the reversed profile alone.
        evalues: float64 [n].
        is_member: bool [n], True for candidates that may join the family of their query; all False if there
            are no families.
    """

    excess: np.ndarray
    reversed_excess: np.ndarray
    evalues: np.ndarray
    is_member: np.ndarray
