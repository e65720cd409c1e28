"""One search with many profiles: E-values, corrections of scores, and the selection of hits."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from msa.database.database import TargetDatabase
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.statistics import (
    CHANCE_FRACTION,
    bit_scores,
    evalues,
    longest_targets,
    reversed_excess,
)
from msa.search.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR, composition_excess
from msa.search.engine import Candidates, Engine, EngineRequest, QueryProfile, Selection
from msa.search.family import (
    MEMBER_CORRECTION_WEIGHT,
    Family,
    family_parameters,
    family_settings,
    is_uncorrected,
)
from msa.search.hits import Hits, QueryHits
from msa.search.settings import SearchSettings
from msa.search.windows import best_hits


@dataclass
class _QueryStatistics:
    """The statistics of a query, on which the E-values of its targets depend.

    Args:
        length: residues of the query.
        parameters: of chance scores.
        chance_fraction: see `msa.profile.statistics.reversed_excess`.
        uncorrected: int16 [length, 32], the profile if alignments are corrected for their composition, until
            the query's hits are known; else None.
    """

    length: int
    parameters: GumbelParameters
    chance_fraction: float
    uncorrected: np.ndarray | None


class ProfileSearch:
    """A search with each of many profiles once.

    Args:
        database: the database to search.
        settings: see SearchSettings.
        engine: filters and aligns.
        of_families: whether the profiles are those of families.
        max_evalue: largest E-value of a hit.
        keep_filtered: whether to set `Hits.filtered`.
        keep_all: whether to return more than `max_seqs` hits of a sequence.
    """

    def __init__(
        self,
        database: TargetDatabase,
        settings: SearchSettings,
        engine: Engine,
        of_families: bool,
        max_evalue: float,
        keep_filtered: bool = False,
        keep_all: bool = False,
    ) -> None:
        self._database, self._targets, self._engine = database, database.arrays, engine
        self._max_evalue, self._keep_filtered, self._keep_all = max_evalue, keep_filtered, keep_all
        if of_families:
            self._settings, self._base = family_settings(settings), family_parameters(settings)
        else:
            self._settings = settings
            self._base = gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)
        self._corrects_alignments = settings.corrects_alignments and not of_families
        # of the queries that the engine has taken so far
        self._queries: list[_QueryStatistics] = []

    def run(
        self, profiles: Iterable[QueryProfile | Family], progress: Callable[[int], None]
    ) -> Iterator[QueryHits]:
        """Yield the hits of each profile, in order.

        Args:
            profiles: profiles or families; consumed lazily, as the engine has capacity.
            progress: called with the number of query–target pairs that have been filtered.
        """
        settings = self._settings
        # identity and coverage are known only after the alignment, so that candidates which fail these
        # thresholds would take the place of others; so is the composition of the aligned regions
        limits_early = not (settings.has_thresholds or self._corrects_alignments)
        selection = Selection(
            self._candidate_evalues,
            self._max_evalue,
            settings.max_seqs if limits_early else None,
            settings.comp_bias_corr,
            self._longest_targets,
        )
        request = EngineRequest(self._targets, settings, progress, selection)
        for query, candidates in enumerate(self._engine.run(self._take(profiles), request)):
            yield self._hits(query, candidates)

    def _take(self, profiles: Iterable[QueryProfile | Family]) -> Iterator[QueryProfile]:
        """Yield the profiles for the engine, and keep what their E-values depend on."""
        for each in profiles:
            profile, k_factor = (each.profile, each.k_factor) if isinstance(each, Family) else (each, 1.0)
            fraction, scores = CHANCE_FRACTION, None
            # a saved profile may have been corrected already
            if self._corrects_alignments and is_uncorrected(profile, self._settings.matrix):
                fraction, scores, k_factor = SEQUENCE_CHANCE_FRACTION, profile.profile, SEQUENCE_K_FACTOR
            parameters = replace(self._base, k=self._base.k * k_factor)
            self._queries.append(_QueryStatistics(len(profile.codes), parameters, fraction, scores))
            yield profile

    def _evalues(
        self, query: int, indices: np.ndarray, scores: np.ndarray, limit: float = math.inf
    ) -> np.ndarray:
        statistics, lengths = self._queries[query], self._targets.lengths[indices]
        residues = self._database.total_residues
        return evalues(scores, statistics.length, lengths, residues, statistics.parameters, limit)

    def _reversed_excess(self, query: int, indices: np.ndarray, reversed_scores: np.ndarray) -> np.ndarray:
        statistics, lengths = self._queries[query], self._targets.lengths[indices]
        return reversed_excess(
            reversed_scores, statistics.length, lengths, self._base, statistics.chance_fraction
        )

    def _candidate_evalues(
        self, query: int, indices: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the E-values of candidates that are not aligned yet; see `Selection`."""
        if reversed_scores is not None:
            excess = self._reversed_excess(query, indices, reversed_scores)
            scores = np.maximum(scores.astype(np.int64) - excess, 0)
        return self._evalues(query, indices, scores, self._max_evalue)

    def _longest_targets(self, query: int) -> np.ndarray:
        statistics, residues = self._queries[query], self._database.total_residues
        return longest_targets(statistics.length, residues, statistics.parameters, self._max_evalue)

    def _excess(self, query: int, indices: np.ndarray, candidates: Candidates) -> np.ndarray:
        """Return what is subtracted from the scores of the aligned candidates, int64 [n], ≥ 0."""
        excess = np.zeros(len(indices), np.int64)
        if self._settings.comp_bias_corr:
            excess = self._reversed_excess(query, indices, candidates.reversed_scores)
        statistics = self._queries[query]
        if (profile := statistics.uncorrected) is not None:
            # not needed any more, and there may be very many queries
            statistics.uncorrected = None
            records, matrix = candidates.alignments.records, self._settings.matrix
            of_composition = composition_excess(
                profile, records, self._targets, indices, matrix, self._base.lambda_
            )
            excess = np.maximum(excess, of_composition)
        return excess

    def _hits(self, query: int, candidates: Candidates) -> QueryHits:
        """Return the hits among the aligned candidates of a query, best first."""
        settings, statistics = self._settings, self._queries[query]
        indices, raw = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
        excess = self._excess(query, indices, candidates)
        scores = np.maximum(raw - excess, 0)
        hit_evalues = self._evalues(query, indices, scores)
        is_member = np.zeros(len(indices), bool)
        if settings.num_iterations > 1 or self._keep_filtered:
            member_scores = np.maximum(raw - MEMBER_CORRECTION_WEIGHT * excess, 0)
            member_evalues = self._evalues(query, indices, member_scores, settings.e_profile)
            is_member = member_evalues <= settings.e_profile
        order, capped = np.lexsort((indices, -raw, hit_evalues)), candidates.capped
        if self._corrects_alignments:
            order = self._passing_hits(order, indices, hit_evalues <= self._max_evalue)
            if not (settings.has_thresholds or self._keep_all):
                order, capped = self._best_hits(order, indices, candidates, statistics.length)
        hits = Hits(
            statistics.length,
            self._database,
            indices[order],
            indices[order],
            bit_scores(scores[order], statistics.parameters),
            hit_evalues[order],
            candidates.alignments.subset(order),
            capped,
            candidates.filtered if self._keep_filtered else None,
        )
        return QueryHits(hits, is_member[order])

    def _passing_hits(self, order: np.ndarray, targets: np.ndarray, passes: np.ndarray) -> np.ndarray:
        """Return the candidates that are hits, in order: those that pass and whose representatives pass.

        Args:
            order: int64 [n], indices of the candidates, best first.
            targets: int64 [n], targets of the candidates.
            passes: bool [n], True for candidates with a sufficiently small E-value.
        """
        representatives = self._database.cluster_representatives(targets)
        is_hit = passes & np.isin(representatives, targets[passes])
        return order[is_hit[order]]

    def _best_hits(
        self, order: np.ndarray, targets: np.ndarray, candidates: Candidates, query_length: int
    ) -> tuple[np.ndarray, bool]:
        """Apply `max_seqs` to the representatives, and return these with the members of their clusters.

        Args:
            order: int64 [n], indices of the hits among the aligned candidates, best first.
            targets: int64 [m], targets of the aligned candidates.
            candidates: the candidates.
            query_length: residues.

        Returns:
            The indices of the hits, best first, and whether the limit removed hits.
        """
        representatives = self._database.cluster_representatives(targets[order])
        best = order[representatives == targets[order]]
        kept = best_hits(candidates.alignments.subset(best), query_length, self._settings.max_seqs)
        if kept.all():
            return order, False
        return order[np.isin(representatives, targets[best[kept]])], True
