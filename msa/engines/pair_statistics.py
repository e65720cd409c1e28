"""The statistics of pairs of a query and a target in one search: E-values and corrections of scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msa.profile.gumbel import GumbelParameters
from msa.profile.statistics import evalues, length_factors, reversed_excess


@dataclass(frozen=True)
class QueryStatistics:
    """The numbers of a query on which the E-values of its targets depend.

    Args:
        length: residues of the query.
        k: Karlin and Altschul's K of its scores.
        chance_fraction: see `msa.profile.statistics.reversed_excess`.
        reference_length: see `msa.profile.statistics.length_factors`.
    """

    length: int
    k: float
    chance_fraction: float
    reference_length: float


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """The statistics of pairs of a query and a target.

    Args:
        parameters: of chance scores, the same for all queries but for K.
        database_residues: residues of the whole database.
        query_lengths: int64 [n], residues of the query of each pair.
        k: float64 [n], K of the query's scores.
        chance_fractions: float64 [n]; see QueryStatistics.
        reference_lengths: float64 [n]; see QueryStatistics.
        target_lengths: int32 [n], residues.
    """

    parameters: GumbelParameters
    database_residues: int
    query_lengths: np.ndarray
    k: np.ndarray
    chance_fractions: np.ndarray
    reference_lengths: np.ndarray
    target_lengths: np.ndarray

    @classmethod
    def of_queries(
        cls,
        parameters: GumbelParameters,
        residues: int,
        queries: Sequence[QueryStatistics],
        owners: np.ndarray,
        target_lengths: np.ndarray,
    ) -> "PairStatistics":
        """Return the statistics of several queries, each with several targets.

        Args:
            parameters: see PairStatistics.
            residues: residues of the whole database.
            queries: the queries.
            owners: int64 [n], index in `queries` of each pair's query.
            target_lengths: int32 [n].
        """
        lengths = np.array([query.length for query in queries], np.int64)
        numbers = [(query.k, query.chance_fraction, query.reference_length) for query in queries]
        k, fractions, reference_lengths = np.array(numbers, np.float64).T[:, owners]
        return cls(parameters, residues, lengths[owners], k, fractions, reference_lengths, target_lengths)

    @property
    def length_factors(self) -> np.ndarray:
        """The factors of E-values that are due to the lengths of the targets, float64 [n]."""
        return length_factors(self.target_lengths, self.reference_lengths)

    def evalues(self, scores: np.ndarray) -> np.ndarray:
        """Compute the E-values of scores, int [n], float64 [n]."""
        lengths, residues = self.target_lengths, self.database_residues
        values = evalues(scores, self.query_lengths, lengths, residues, self.parameters, self.k)
        return np.asarray(values * self.length_factors)

    def pair_evalues(self, scores: np.ndarray) -> np.ndarray:
        """Compute the E-values of scores, int [n], for databases of each target alone, float64 [n]."""
        lengths = self.target_lengths
        values = evalues(scores, self.query_lengths, lengths, 1, self.parameters, self.k)
        return np.asarray(values * lengths)

    def reversed_excess(self, reversed_scores: np.ndarray) -> np.ndarray:
        """Return the part of scores that is due to the reversed profile; see msa.profile.statistics."""
        lengths, fractions = self.target_lengths, self.chance_fractions
        return reversed_excess(reversed_scores, self.query_lengths, lengths, self.parameters, fractions)
