"""The aligned candidates of several queries, how they are scored, and their scores."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msa.database.database import TargetDatabase
from msa.engines.pair_statistics import QueryStatistics
from msa.engines.search_settings import SearchSettings
from msa.profile.pssm import QueryProfile


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


@dataclass(frozen=True)
class ScoringRules:
    """The rules by which the candidates of one search with profiles are scored.

    Args:
        settings: of the search.
        of_families: whether the profiles are those of families.
        finds_members: whether to find the candidates that may join a family.
    """

    settings: SearchSettings
    of_families: bool
    finds_members: bool

    @property
    def corrects_alignments(self) -> bool:
        """True if scores are corrected for the composition of the aligned regions."""
        return self.settings.corrects_alignments and not self.of_families


class ScoringProcess(Protocol):
    """Another process, which scores candidates while this one works."""

    def submit(self, batch: AlignedBatch, database: TargetDatabase, rules: ScoringRules) -> "Future[Scores]":
        """Score candidates of a database; the result raises ServiceEnded if the process ends."""
        ...
