"""One search with many profiles: E-values, corrections of scores, and the selection of hits."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.statistics import (
    CHANCE_FRACTION,
    bit_scores,
    evalues,
    longest_targets,
    reversed_excess,
)
from msa.search.composition import (
    LONG_TARGET,
    SEQUENCE_CHANCE_FRACTION,
    SEQUENCE_K_FACTOR,
    composition_excess,
)
from msa.search.engine import Candidates, Engine, EngineRequest, QueryProfile, Selection
from msa.search.family import (
    MEMBER_CORRECTION_WEIGHT,
    Family,
    family_parameters,
    family_settings,
    is_uncorrected,
)
from msa.search.hits import Hits, QueryHits
from msa.search.second_alignments import (
    MAX_EVALUE,
    MAX_PAIR_EVALUE,
    MIN_EVALUE,
    TargetParts,
    summed_evalues,
)
from msa.search.settings import SearchSettings
from msa.search.windows import best_hits


@dataclass
class _QueryStatistics:
    """The statistics of a query, on which the E-values of its targets depend.

    Args:
        length: residues of the query.
        parameters: of chance scores.
        chance_fraction: see `msa.profile.statistics.reversed_excess`.
        long_target: residues above which E-values are proportional to the length of the target.
        uncorrected: the query if its alignments are corrected for their composition, until its hits are
            known; else None.
    """

    length: int
    parameters: GumbelParameters
    chance_fraction: float
    long_target: float
    uncorrected: QueryProfile | None


@dataclass(frozen=True, eq=False)
class _ScoredCandidates:
    """The aligned candidates of a query, with corrected scores and E-values.

    Args:
        query: index of the query.
        candidates: from the engine.
        indices: int64 [n], targets.
        raw_scores: int32 [n].
        excess: int64 [n], ≥ 0, subtracted from the scores.
        reversed_excess: int64 [n], the part of it that is due to the reversed profile alone.
        evalues: float64 [n].
    """

    query: int
    candidates: Candidates
    indices: np.ndarray
    raw_scores: np.ndarray
    excess: np.ndarray
    reversed_excess: np.ndarray
    evalues: np.ndarray


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
        # a second alignment may lower the E-value of candidates
        self._max_candidate_evalue = max(max_evalue, MAX_EVALUE) if self._corrects_alignments else max_evalue
        # identity and coverage are known only after the alignment, so that candidates which fail these
        # thresholds would take the place of others; so is the composition of the aligned regions
        self._limits_early = not (settings.has_thresholds or self._corrects_alignments)
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
        selection = Selection(
            self._candidate_evalues,
            self._max_candidate_evalue,
            settings.max_seqs if self._limits_early else None,
            settings.comp_bias_corr,
            self._longest_targets,
        )
        request = EngineRequest(self._targets, settings, progress, selection)
        found = enumerate(self._engine.run(self._take(profiles), request))
        batch = []
        for query, candidates in found:
            batch.append(self._score(query, candidates))
            # on GPUs, the second alignments of several queries take about as long as those of one
            if self._corrects_alignments and candidates.more_are_ready:
                continue
            for each in self._with_second_alignments(batch) if self._corrects_alignments else batch:
                yield self._hits(each)
            batch.clear()

    def _take(self, profiles: Iterable[QueryProfile | Family]) -> Iterator[QueryProfile]:
        """Yield the profiles for the engine, and keep what their E-values depend on."""
        for each in profiles:
            profile, k_factor = (each.profile, each.k_factor) if isinstance(each, Family) else (each, 1.0)
            fraction, long_target, uncorrected = CHANCE_FRACTION, math.inf, None
            # a saved profile may have been corrected already
            if self._corrects_alignments and is_uncorrected(profile, self._settings.matrix):
                fraction, long_target, uncorrected = SEQUENCE_CHANCE_FRACTION, LONG_TARGET, profile
                k_factor = SEQUENCE_K_FACTOR
            parameters = replace(self._base, k=self._base.k * k_factor)
            statistics = _QueryStatistics(len(profile.codes), parameters, fraction, long_target, uncorrected)
            self._queries.append(statistics)
            yield profile

    def _evalues(
        self, query: int, indices: np.ndarray, scores: np.ndarray, limit: float = math.inf
    ) -> np.ndarray:
        statistics, lengths = self._queries[query], self._targets.lengths[indices]
        residues = self._database.total_residues
        values = evalues(scores, statistics.length, lengths, residues, statistics.parameters, limit)
        return np.asarray(values * np.maximum(lengths / statistics.long_target, 1.0))

    def _pair_evalues(self, query: int, indices: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return the E-values for databases of each target alone."""
        statistics, lengths = self._queries[query], self._targets.lengths[indices]
        return evalues(scores, statistics.length, lengths, 1, statistics.parameters) * lengths

    def _reversed_excess(self, query: int, indices: np.ndarray, reversed_scores: np.ndarray) -> np.ndarray:
        statistics, lengths = self._queries[query], self._targets.lengths[indices]
        return reversed_excess(
            reversed_scores, statistics.length, lengths, self._base, statistics.chance_fraction
        )

    def _candidate_evalues(
        self, query: int, indices: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the E-values of candidates that are not aligned yet; see `Selection`."""
        if reversed_scores is None:
            return self._evalues(query, indices, scores, self._max_candidate_evalue)
        excess = self._reversed_excess(query, indices, reversed_scores)
        scores = np.maximum(scores.astype(np.int64) - excess, 0)
        if self._limits_early:
            return self._evalues(query, indices, scores, self._max_candidate_evalue)
        values, changed = np.zeros(len(indices)), np.flatnonzero(excess)
        values[changed] = self._evalues(query, indices[changed], scores[changed], self._max_candidate_evalue)
        return values

    def _longest_targets(self, query: int) -> np.ndarray:
        statistics, residues = self._queries[query], self._database.total_residues
        return longest_targets(statistics.length, residues, statistics.parameters, self._max_candidate_evalue)

    def _composition_excess(
        self, query: int, sequences: SequenceArrays, indices: np.ndarray, records: np.ndarray
    ) -> np.ndarray:
        """Return the part of scores that the composition of the aligned regions explains, int64 [n], ≥ 0."""
        uncorrected = self._queries[query].uncorrected
        if uncorrected is None:
            return np.zeros(len(indices), np.int64)
        matrix, lambda_ = self._settings.matrix, self._base.lambda_
        return composition_excess(uncorrected.profile, records, sequences, indices, matrix, lambda_)

    def _score(self, query: int, candidates: Candidates) -> _ScoredCandidates:
        """Correct the scores of a query's aligned candidates, and compute their E-values."""
        indices, raw = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
        of_reversed = np.zeros(len(indices), np.int64)
        if self._settings.comp_bias_corr:
            of_reversed = self._reversed_excess(query, indices, candidates.reversed_scores)
        records = candidates.alignments.records
        excess = np.maximum(of_reversed, self._composition_excess(query, self._targets, indices, records))
        values = self._evalues(query, indices, np.maximum(raw - excess, 0))
        return _ScoredCandidates(query, candidates, indices, raw, excess, of_reversed, values)

    def _with_second_alignments(self, batch: Sequence[_ScoredCandidates]) -> Iterator[_ScoredCandidates]:
        """Yield the candidates of several queries with E-values that include second alignments."""
        rows = [
            np.flatnonzero((each.evalues >= MIN_EVALUE) & (each.evalues <= MAX_EVALUE))
            if self._queries[each.query].uncorrected is not None
            else np.empty(0, np.int64)
            for each in batch
        ]
        ends = np.cumsum([len(of_query) for of_query in rows]).tolist()
        best = [each.indices[of_query] for each, of_query in zip(batch, rows, strict=True)]
        records = [
            each.candidates.alignments.records[of_query] for each, of_query in zip(batch, rows, strict=True)
        ]
        targets = np.concatenate(best)
        parts = TargetParts.beside(self._targets, targets, np.concatenate(records))
        selected = [k for k, of_query in enumerate(rows) if len(of_query)]

        def pairs() -> Iterator[tuple[QueryProfile, np.ndarray]]:
            for k in selected:
                query = self._queries[batch[k].query].uncorrected
                assert query is not None
                yield query, parts.non_empty(ends[k] - len(rows[k]), ends[k])

        def pair_evalues(
            index: int, of_parts: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
        ) -> np.ndarray:
            return self._pair_evalues(batch[selected[index]].query, targets[of_parts // 2], scores)

        selection = Selection(pair_evalues, MAX_PAIR_EVALUE)
        request = EngineRequest(parts.sequences, self._settings, None, selection)
        found = iter(self._engine.align(pairs(), request) if selected else ())
        for each, of_query, end in zip(batch, rows, ends, strict=True):
            if len(of_query):
                yield self._with_sums(each, of_query, end - len(of_query), parts, next(found))
            else:
                yield each

    def _with_sums(
        self,
        scored: _ScoredCandidates,
        rows: np.ndarray,
        first: int,
        parts: TargetParts,
        second: Candidates,
    ) -> _ScoredCandidates:
        """Return the candidates of a query with E-values that include second alignments.

        Args:
            scored: the candidates.
            rows: int64 [n], those with a second alignment.
            first: index of the first of these in `parts`.
            parts: the parts of the targets of all queries.
            second: the second alignments; targets are parts.
        """
        query, of_parts = scored.query, second.targets[second.aligned]
        row = rows[of_parts // 2 - first]
        records = second.alignments.records
        excess = self._composition_excess(query, parts.sequences, of_parts, records)
        excess = np.maximum(excess, scored.reversed_excess[row])
        scores = np.maximum(second.scores[second.aligned] - excess, 0)
        indices, values = scored.indices[row], scored.evalues.copy()
        second_evalues = self._pair_evalues(query, indices, scores)
        best_scores = np.maximum(scored.raw_scores - scored.excess, 0)[row]
        sums = summed_evalues(
            scored.evalues[row],
            self._pair_evalues(query, indices, best_scores),
            second_evalues,
            parts.are_ordered(of_parts, records),
        )
        passes = second_evalues <= MAX_PAIR_EVALUE
        np.minimum.at(values, row[passes], sums[passes])
        return replace(scored, evalues=values)

    def _hits(self, scored: _ScoredCandidates) -> QueryHits:
        """Return the hits among the aligned candidates of a query, best first."""
        query, candidates, indices, raw = scored.query, scored.candidates, scored.indices, scored.raw_scores
        settings, statistics = self._settings, self._queries[query]
        # not needed any more, and there may be very many queries
        statistics.uncorrected = None
        scores, hit_evalues = np.maximum(raw - scored.excess, 0), scored.evalues
        is_member = np.zeros(len(indices), bool)
        if settings.num_iterations > 1 or self._keep_filtered:
            member_scores = np.maximum(raw - MEMBER_CORRECTION_WEIGHT * scored.excess, 0)
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
