"""One search with many profiles: E-values, corrections of scores, and the selection of hits."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from msa.base.services.service import ServiceEnded
from msa.database.database import TargetDatabase
from msa.engines.engine import (
    Candidates,
    Engine,
    EngineRequest,
    SelectionCriteria,
    all_alignments,
)
from msa.engines.pair_statistics import PairStatistics, QueryStatistics
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits, QueryHits
from msa.io.molecules import PROTEIN
from msa.profile.pssm import QueryProfile
from msa.profile.statistics import CHANCE_FRACTION, bit_scores, max_filtered_lengths, max_target_lengths
from msa.search.families.family import ProfileFamily
from msa.search.scoring.candidate_scorer import CandidateScorer, profile_parameters, profile_settings
from msa.search.scoring.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR, reference_length
from msa.search.scoring.further_alignments import MAX_EVALUE
from msa.search.windows import best_hits

_BATCH_CANDIDATES = 2**16
"""Number of aligned candidates from which a batch of queries is scored, although more are ready."""

_BATCHES_AHEAD, _BATCHES_AHEAD_IN_PROCESS = 3, 5
"""Number of batches that are scored ahead of the caller if GPUs align, in this process or in another one.
Further alignments of a batch take about as long as its filter, and mostly wait for the GPU."""


@dataclass(frozen=True, eq=False)
class _Batch:
    """Queries whose candidates are scored together."""

    queries: Sequence[int]
    candidates: Sequence[Candidates]
    aligned: AlignedBatch


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
        self._rules = ScoringRules(settings, of_families, settings.num_iterations > 1 or keep_filtered)
        self._settings, self._base = profile_settings(self._rules), profile_parameters(self._rules)
        self._corrects_alignments = self._rules.corrects_alignments
        self._scorer = CandidateScorer(database, self._rules, engine)
        # further alignments may lower the E-value of candidates
        self._max_candidate_evalue = max(max_evalue, MAX_EVALUE) if self._corrects_alignments else max_evalue
        # identity, coverage and the composition of the aligned regions are known only after the alignment;
        # candidates that fail these thresholds would take the place of others
        self._limits_early = not (settings.has_thresholds or self._corrects_alignments)
        # statistics of the queries that the engine has taken so far
        self._queries: list[QueryStatistics] = []
        # queries whose alignments are corrected for their composition, until their hits are known
        self._uncorrected: dict[int, QueryProfile] = {}

    def run(
        self, profiles: Iterable[QueryProfile | ProfileFamily], progress: Callable[[int], None]
    ) -> Iterator[QueryHits]:
        """Yield the hits of each profile, in order.

        Args:
            profiles: profiles or families; consumed lazily, as the engine has capacity.
            progress: called with the number of query–target pairs that have been filtered.
        """
        settings = self._settings
        selection = SelectionCriteria(
            self._candidate_evalues,
            self._max_candidate_evalue,
            settings.max_seqs if self._limits_early else None,
            settings.comp_bias_corr,
            self._max_target_lengths,
        )
        request = EngineRequest(self._targets, settings, progress, selection)
        batches = self._batches(self._engine.run(self._take(profiles), request))
        scored = ((batch, self._scorer.score(batch.aligned)) for batch in batches)
        for batch, scores in self._scored_ahead(batches) if self._engine.drives_gpus else scored:
            for k in range(len(batch.queries)):
                yield self._hits(batch, scores, k)

    def _scored_ahead(self, batches: Iterable[_Batch]) -> Iterator[tuple[_Batch, Scores]]:
        """Score batches ahead of the caller, and yield the first as soon as it is scored."""
        process, threads = self._engine.scoring_process, ThreadPoolExecutor(_BATCHES_AHEAD, "scores")
        if not self._database.can_reopen:
            process = None

        def submit(batch: _Batch) -> "Future[Scores]":
            if process is None:
                return threads.submit(self._scorer.score, batch.aligned)
            return process.submit(batch.aligned, self._database, self._rules)

        ahead = _BATCHES_AHEAD if process is None else _BATCHES_AHEAD_IN_PROCESS
        try:
            for batch, future in _ahead(((batch, submit(batch)) for batch in batches), ahead):
                try:
                    scores = future.result()
                except ServiceEnded:
                    scores = self._scorer.score(batch.aligned)
                yield batch, scores
        finally:
            threads.shutdown(cancel_futures=True)

    def _batches(self, found: Iterable[Candidates]) -> Iterator[_Batch]:
        """Group queries, with their candidates, that are scored together."""
        batch: list[tuple[int, Candidates]] = []
        count = 0
        for query, candidates in enumerate(found):
            batch.append((query, candidates))
            # several queries are scored, and on GPUs also aligned further, in little more time than one
            count += len(candidates.aligned)
            if candidates.more_are_ready and count < _BATCH_CANDIDATES:
                continue
            yield self._batch(batch)
            batch, count = [], 0

    def _batch(self, members: Sequence[tuple[int, Candidates]]) -> _Batch:
        queries, candidates = [query for query, _ in members], [each for _, each in members]
        uncorrected = self._uncorrected
        profiles = {k: uncorrected[query] for k, query in enumerate(queries) if query in uncorrected}
        statistics = [self._queries[query] for query in queries]
        counts = [len(each.aligned) for each in candidates]
        targets, raw_scores, records = all_alignments(candidates)
        reversed_scores = np.concatenate([each.reversed_scores for each in candidates])
        owners, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts).tolist()
        return _Batch(
            queries, candidates,
            AlignedBatch(
                statistics, profiles, ends, owners, targets, raw_scores, reversed_scores, records
            ),
        )  # fmt: skip

    def _take(self, profiles: Iterable[QueryProfile | ProfileFamily]) -> Iterator[QueryProfile]:
        """Yield the profiles for the engine, and keep what their E-values depend on."""
        settings = self._settings
        for each in profiles:
            profile, k_factor = (
                (each.profile, each.k_factor) if isinstance(each, ProfileFamily) else (each, 1.0)
            )
            fraction, reference = CHANCE_FRACTION, math.inf
            # a saved profile may have been corrected already
            if self._corrects_alignments and profile.is_uncorrected:
                fraction = SEQUENCE_CHANCE_FRACTION
                if settings.molecule == PROTEIN:
                    reference = reference_length(len(profile.codes), self._database, settings.matrix)
                    k_factor = SEQUENCE_K_FACTOR
                self._uncorrected[len(self._queries)] = profile
            k, length = self._base.k * k_factor, len(profile.codes)
            self._queries.append(QueryStatistics(length, k, fraction, reference))
            longest = max_filtered_lengths(
                length, self._database.total_representatives, settings.matrix, self._rules.of_families
            )
            yield replace(profile, max_target_lengths=longest)

    def _pairs(self, queries: np.ndarray, targets: np.ndarray) -> PairStatistics:
        """Return the statistics of pairs of a query and a target.

        Args:
            queries: int64 [n], index of the query of each pair, ascending.
            targets: int64 [n].
        """
        first, end = (queries[0], queries[-1] + 1) if len(queries) else (0, 1)
        return self._scorer.pairs(self._queries[first:end], queries - first, targets)

    def _candidate_evalues(
        self,
        queries: np.ndarray,
        targets: np.ndarray,
        scores: np.ndarray,
        reversed_scores: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the E-values of candidates that are not aligned yet; see `SelectionCriteria`."""
        pairs = self._pairs(queries, targets)
        if reversed_scores is not None:
            scores = np.maximum(scores.astype(np.int64) - pairs.reversed_excess(reversed_scores), 0)
        return pairs.evalues(scores)

    def _max_target_lengths(self, query: int) -> np.ndarray:
        statistics, residues = self._queries[query], self._database.total_residues
        parameters = replace(self._base, k=statistics.k)
        limit, reference = self._max_candidate_evalue, statistics.reference_length
        return max_target_lengths(statistics.length, residues, parameters, limit, reference)

    def _hits(self, batch: _Batch, scores: Scores, k: int) -> QueryHits:
        """Return the hits among the aligned candidates of query `k` of a batch, best first."""
        query, candidates, aligned = batch.queries[k], batch.candidates[k], batch.aligned
        rows = slice(aligned.ends[k] - len(candidates.aligned), aligned.ends[k])
        targets, raw, excess = aligned.targets[rows], aligned.raw_scores[rows], scores.excess[rows]
        hit_evalues, settings, statistics = scores.evalues[rows], self._settings, self._queries[query]
        # there may be very many queries
        self._uncorrected.pop(query, None)
        kept, capped = np.arange(len(targets)), candidates.capped
        if self._corrects_alignments:
            kept = self._passing_hits(targets, hit_evalues <= self._max_evalue)
        order = kept[np.lexsort((targets[kept], -raw[kept], hit_evalues[kept]))]
        if self._corrects_alignments and not (settings.has_thresholds or self._keep_all):
            order, capped = self._best_hits(order, targets, candidates, statistics.length)
        corrected = np.maximum(raw[order] - excess[order], 0)
        hits = Hits(
            statistics.length,
            self._database,
            targets[order],
            targets[order],
            bit_scores(corrected, replace(self._base, k=statistics.k)),
            hit_evalues[order],
            candidates.alignments.subset(order),
            capped,
            candidates.filtered if self._keep_filtered else None,
        )
        return QueryHits(hits, scores.is_member[rows][order])

    def _passing_hits(self, targets: np.ndarray, passes: np.ndarray) -> np.ndarray:
        """Return the candidates that are hits: those that pass and whose representatives pass.

        Args:
            targets: int64 [n], targets of the candidates.
            passes: bool [n], True for candidates with a sufficiently small E-value.

        Returns:
            int64, indices, ascending.
        """
        passing = np.flatnonzero(passes)
        if self._database.representatives == len(self._database):
            return passing
        representatives = self._database.cluster_representatives(targets[passing])
        return passing[np.isin(representatives, targets[passing])]

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
        if len(order) <= self._settings.max_seqs:
            return order, False
        representatives = self._database.cluster_representatives(targets[order])
        best = order[representatives == targets[order]]
        kept = best_hits(candidates.alignments.records[best], query_length, self._settings.max_seqs)
        if kept.all():
            return order, False
        return order[np.isin(representatives, targets[best[kept]])], True


def _ahead(
    submitted: Iterable[tuple[_Batch, Future[Scores]]], count: int
) -> Iterator[tuple[_Batch, Future[Scores]]]:
    """Yield batches in order, each when `count` further ones have been submitted; the first one at once."""
    waiting: deque[tuple[_Batch, Future[Scores]]] = deque()
    ahead = 0
    for batch, scores in submitted:
        waiting.append((batch, scores))
        while len(waiting) > ahead:
            yield waiting.popleft()
            ahead = count
    yield from waiting
