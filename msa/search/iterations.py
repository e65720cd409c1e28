"""Iterated searches: each iteration searches with a profile of the previous hits, as in PSI-BLAST."""

import contextlib
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.pssm import ProfileQuery
from msa.profile.statistics import (
    CHANCE_FRACTION,
    bit_scores,
    evalues,
    longest_targets,
    reversed_excess,
)
from msa.search.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR, composition_excess
from msa.search.engine import Candidates, Engine, EngineRequest, ProfileCallback, QueryProfile, Selection
from msa.search.family import (
    MEMBER_CORRECTION_WEIGHT,
    Family,
    family_parameters,
    family_settings,
    initial_profile,
    is_uncorrected,
)
from msa.search.family_processes import FamilyProcesses, family_processes
from msa.search.hits import Hits, QueryHits
from msa.search.settings import SearchSettings
from msa.search.windows import best_hits

if TYPE_CHECKING:
    from msa.search.families import FamilyBuilder

_MAX_FAMILY_PROCESSES, _MIN_PROCESS_QUERIES = 4, 128
"""Maximum number of processes that build families, and minimum number of queries for which they are started;
each takes a second of CPU time to start."""
_MAX_FAMILY_THREADS = 8
"""Maximum number of threads that update families; more of them would hold the interpreter lock for so long
that a GPU has to wait."""


Update: TypeAlias = "tuple[int, QueryHits, Future[Family | None]]"
"""The index of a query, its hits in one iteration, and its family for the next; None if it stays the same."""


@dataclass(frozen=True)
class IteratedSearch:
    """A search with one or more iterations.

    Args:
        database: the database to search.
        settings: see SearchSettings.
        engine: filters and aligns.
        max_queries: maximum number of queries in a call of `run`.
        keep_filtered: whether to set `Hits.filtered`.
        keep_all: whether to return more than `max_seqs` hits of a sequence, because they will be merged with
            others.
    """

    database: TargetDatabase
    settings: SearchSettings
    engine: Engine
    max_queries: int = 1
    keep_filtered: bool = False
    keep_all: bool = False

    @cached_property
    def family_builder(self) -> "FamilyBuilder":
        """Builder of families; CPU threads are divided among the families that are built at once."""
        from msa.search.families import FamilyBuilder  # imports numba, which one iteration may not need

        threads = max(1, self.settings.threads // self.max_queries)
        return FamilyBuilder(self.database, replace(self.settings, threads=threads))

    def run(
        self,
        queries: Sequence[FastaRecord],
        progress: Callable[[int], None],
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[Hits]:
        """Yield the hits of each query after the last iteration, in the order of the queries.

        A query leaves the search when an iteration does not change its profile. All iterations but the last
        align only targets that may join a family, so if the settings allow hits with a larger E-value, every
        query takes part in the last iteration.

        Args:
            queries: with several iterations, the hits of all queries are held in memory.
            progress: called with the number of query–target pairs that have been filtered.
            on_profile: called with the profile of a query's last iteration, before its hits are yielded.

        Raises:
            InputError: a query has a family profile, and there are no statistics for its gap costs.
        """
        with self._family_processes(len(queries)) as processes, self._family_threads() as pool:
            yield from _Iterations(self, queries, progress, pool, processes).run(on_profile)

    def run_next(
        self,
        queries: Sequence[FastaRecord],
        earlier: Sequence[Callable[[int], QueryHits]],
        progress: Callable[[int], None],
    ) -> Iterator[tuple[int, QueryHits]]:
        """Run the iteration that follows some earlier ones, which may have searched other databases as well.

        Args:
            queries: see `run`.
            earlier: one function for each earlier iteration, which returns the hits of a query, given its
                index; called only for queries that took part.
            progress: see `run`.

        Returns:
            The index and the hits of each query that takes part, in order.

        Raises:
            InputError: see `run`.
        """
        with self._family_threads() as pool:
            yield from _Iterations(self, queries, progress, pool).run_next(earlier)

    def search_once(
        self,
        profiles: Iterable[QueryProfile | Family],
        of_families: bool,
        max_evalue: float,
        progress: Callable[[int], None],
    ) -> Iterator[QueryHits]:
        """Search with each profile once.

        Args:
            profiles: profiles or families; consumed lazily, as the engine has capacity.
            of_families: whether `profiles` contains families.
            max_evalue: largest E-value of a hit.
            progress: see `run`.

        Returns:
            The hits of each query, in order.
        """
        database, settings = self.database, self.settings
        targets = database.arrays
        if of_families:
            settings, base = family_settings(settings), family_parameters(settings)
        else:
            base = gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)
        limits_early = of_families or not settings.corrects_alignments
        # one element for each query that the engine has taken so far; profiles, of queries whose alignments
        # are corrected, only until they are used
        lengths: list[int] = []
        parameters: list[GumbelParameters] = []
        chance_fractions: list[float] = []
        uncorrected: deque[np.ndarray | None] = deque()

        def engine_queries() -> Iterator[QueryProfile]:
            for each in profiles:
                profile, k_factor = (each.profile, each.k_factor) if isinstance(each, Family) else (each, 1.0)
                fraction, scores = CHANCE_FRACTION, None
                # a saved profile may have been corrected already
                if not limits_early and is_uncorrected(profile, settings.matrix):
                    fraction, scores, k_factor = SEQUENCE_CHANCE_FRACTION, profile.profile, SEQUENCE_K_FACTOR
                lengths.append(len(profile.codes))
                parameters.append(replace(base, k=base.k * k_factor))
                chance_fractions.append(fraction)
                uncorrected.append(scores)
                yield profile

        def target_evalues(
            query: int, indices: np.ndarray, scores: np.ndarray, limit: float = math.inf
        ) -> np.ndarray:
            target_lengths, residues = targets.lengths[indices], database.total_residues
            return evalues(scores, lengths[query], target_lengths, residues, parameters[query], limit)

        def excess_of_reversed(query: int, indices: np.ndarray, reversed_scores: np.ndarray) -> np.ndarray:
            return reversed_excess(
                reversed_scores, lengths[query], targets.lengths[indices], base, chance_fractions[query]
            )

        def candidate_evalues(
            query: int, indices: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
        ) -> np.ndarray:
            if reversed_scores is not None:
                excess = excess_of_reversed(query, indices, reversed_scores)
                scores = np.maximum(scores.astype(np.int64) - excess, 0)
            return target_evalues(query, indices, scores, max_evalue)

        def longest_targets_of(query: int) -> np.ndarray:
            return longest_targets(lengths[query], database.total_residues, parameters[query], max_evalue)

        # identity and coverage are known only after the alignment, so that candidates which fail these
        # thresholds would take the place of others; so is the composition of the aligned regions
        limits_hits = not settings.has_thresholds
        max_aligned = settings.max_seqs if limits_hits and limits_early else None
        selection = Selection(
            candidate_evalues,
            max_evalue,
            max_aligned,
            settings.comp_bias_corr,
            longest_targets_of,
        )
        request = EngineRequest(targets, settings, progress, selection)
        for query, candidates in enumerate(self.engine.run(engine_queries(), request)):
            indices, raw = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
            profile, records = uncorrected.popleft(), candidates.alignments.records
            excess = np.zeros(len(raw), np.int64)
            if settings.comp_bias_corr:
                excess = excess_of_reversed(query, indices, candidates.reversed_scores)
            if profile is not None:
                of_composition = composition_excess(
                    profile, records, targets, indices, settings.matrix, base.lambda_
                )
                excess = np.maximum(excess, of_composition)
            scores = np.maximum(raw - excess, 0)
            member_scores = np.maximum(raw - MEMBER_CORRECTION_WEIGHT * excess, 0)
            hit_evalues = target_evalues(query, indices, scores)
            is_member = np.zeros(len(indices), bool)
            if settings.num_iterations > 1 or self.keep_filtered:
                member_evalues = target_evalues(query, indices, member_scores, settings.e_profile)
                is_member = member_evalues <= settings.e_profile
            order = np.lexsort((indices, -raw, hit_evalues))
            capped = candidates.capped
            if not limits_early:
                order = self._passing_hits(order, indices, hit_evalues <= max_evalue)
                if limits_hits and not self.keep_all:
                    order, capped = self._best_hits(order, indices, candidates, lengths[query])
            hits = Hits(
                lengths[query],
                database,
                indices[order],
                indices[order],
                bit_scores(scores[order], parameters[query]),
                hit_evalues[order],
                candidates.alignments.subset(order),
                capped,
                candidates.filtered if self.keep_filtered else None,
            )
            yield QueryHits(hits, is_member[order])

    def _passing_hits(self, order: np.ndarray, targets: np.ndarray, passes: np.ndarray) -> np.ndarray:
        """Return the candidates that are hits, in order: those that pass and whose representatives pass.

        Args:
            order: int64 [n], indices of the candidates, best first.
            targets: int64 [n], targets of the candidates.
            passes: bool [n], True for candidates with a sufficiently small E-value.
        """
        representatives = self.database.cluster_representatives(targets)
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
        representatives = self.database.cluster_representatives(targets[order])
        best = order[representatives == targets[order]]
        kept = best_hits(candidates.alignments.subset(best), query_length, self.settings.max_seqs)
        if kept.all():
            return order, False
        return order[np.isin(representatives, targets[best[kept]])], True

    def _family_processes(self, queries: int) -> contextlib.AbstractContextManager[FamilyProcesses | None]:
        """Start processes that build families, if this process drives GPUs and there are many queries."""
        settings = self.settings
        count = min(settings.threads // 2, _MAX_FAMILY_PROCESSES)
        worthwhile = settings.num_iterations > 1 and queries >= _MIN_PROCESS_QUERIES and count > 0
        if not worthwhile or not self.engine.drives_gpus:
            return contextlib.nullcontext()
        return family_processes(self.database, replace(settings, threads=1), count)

    @contextlib.contextmanager
    def _family_threads(self) -> Iterator[ThreadPoolExecutor]:
        """Provide threads for building families; cancel pending tasks when the block ends."""
        threads = min(self.settings.threads, self.max_queries, _MAX_FAMILY_THREADS)
        pool = ThreadPoolExecutor(threads, "families")
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


class _Iterations:
    """The state of one iterated search; arguments as for `IteratedSearch.run`."""

    def __init__(
        self,
        search: IteratedSearch,
        queries: Sequence[FastaRecord],
        progress: Callable[[int], None],
        pool: ThreadPoolExecutor,
        processes: FamilyProcesses | None = None,
    ) -> None:
        self._processes = processes
        self._search, self._queries, self._progress, self._pool = search, queries, progress, pool
        from_profile = {
            k: pool.submit(search.family_builder.from_profile, query)
            for k, query in enumerate(queries)
            if isinstance(query, ProfileQuery) and query.of_family
        }
        # by query index: queries with a family, and final hits of queries that have left the search
        self._families: dict[int, Family] = {k: family.result() for k, family in from_profile.items()}
        self._final_hits: dict[int, Hits] = {}
        self._filtered_pairs = self._reported_pairs = 0
        # whether the engine has taken all queries of the current search
        self._all_taken = False

    def run(self, on_profile: ProfileCallback | None) -> Iterator[Hits]:
        """Run all iterations and yield the hits of each query."""
        settings, all_queries = self._search.settings, range(len(self._queries))
        if settings.num_iterations == 1:
            last = self._search_queries(all_queries, settings.evalue)
        else:
            active = self._update_families(self._search_queries(all_queries, settings.e_profile))
            for _ in range(settings.num_iterations - 2):
                active = self._update_families(self._search_families(active, settings.e_profile))
            if settings.evalue <= settings.e_profile:
                last = self._search_families(active, settings.evalue)
            else:
                # all queries take part, as soon as all families are known
                deque(active, maxlen=0)
                last = self._search_queries(all_queries, settings.evalue)
        next_query = 0
        for k, result in last:
            yield from self._finish(range(next_query, k), on_profile)
            self._final_hits[k] = result.hits
            yield from self._finish(range(k, k + 1), on_profile)
            next_query = k + 1
        yield from self._finish(range(next_query, len(self._queries)), on_profile)

    def run_next(self, earlier: Sequence[Callable[[int], QueryHits]]) -> Iterator[tuple[int, QueryHits]]:
        """Run one iteration; see `IteratedSearch.run_next`."""
        settings, all_queries = self._search.settings, range(len(self._queries))
        active = list(all_queries)
        for hits_of in earlier:
            active = list(self._update_families((k, hits_of(k)) for k in active))
        self._final_hits.clear()
        if len(earlier) + 1 < settings.num_iterations:
            return self._search_queries(active, settings.e_profile)
        all_take_part = settings.evalue > settings.e_profile
        return self._search_queries(all_queries if all_take_part else active, settings.evalue)

    def _finish(self, indices: Iterable[int], on_profile: ProfileCallback | None) -> Iterator[Hits]:
        """Yield the final hits of some queries."""
        for k in indices:
            if on_profile is not None:
                on_profile(self._queries[k], self._profile(k), k in self._families)
            yield self._final_hits.pop(k)

    def _update_families(self, results: Iterable[tuple[int, QueryHits]]) -> Iterator[int]:
        """Run one iteration until the engine has taken all queries; return those whose family changed.

        They are yielded as they become known. The engine therefore works on the next iteration while it
        finishes the last queries of this one, and while families are still being updated.
        """
        updates = (self._start_update(k, result) for k, result in results)
        started: deque[Update] = deque()
        for update in updates:
            started.append(update)
            if self._all_taken:
                break
        return self._changed_families(started, updates)

    def _start_update(self, k: int, result: QueryHits) -> Update:
        """Start to update the family of a query."""
        builder = self._processes or self._search.family_builder
        arguments = self._queries[k], self._families.get(k), result.member_hits
        return k, result, self._pool.submit(builder.update, *arguments)

    def _changed_families(self, started: deque[Update], others: Iterator[Update]) -> Iterator[int]:
        """Yield the queries whose family changed; the others may leave the search.

        Args:
            started: the first updates.
            others: the other updates, which start when they are taken.
        """
        settings = self._search.settings
        while True:
            if not started:
                started.extend(others)
            if not started:
                return
            k, result, update = started.popleft()
            family = update.result()
            if family is not None:
                self._families[k] = family
                yield k
            elif settings.evalue <= settings.e_profile:
                hits = result.hits.subset(result.hits.evalues <= settings.evalue)
                capped = hits.capped and len(hits) == len(result.hits)
                self._final_hits[k] = replace(hits, capped=capped)

    def _search_queries(self, indices: Sequence[int], max_evalue: float) -> Iterator[tuple[int, QueryHits]]:
        """Search once with each of the given queries, in order.

        Queries with and without a family have different gap costs and need separate engine calls.
        """
        without_family = [k for k in indices if k not in self._families]
        with_family = [k for k in indices if k in self._families]
        first = self._search_one_kind(without_family, False, max_evalue)
        second = self._search_one_kind(with_family, True, max_evalue)
        if not without_family or not with_family:
            return first if without_family else second
        # only one engine call may be active: finish the first before the second starts
        return heapq.merge(list(first), second, key=lambda found: found[0])

    def _search_families(self, indices: Iterable[int], max_evalue: float) -> Iterator[tuple[int, QueryHits]]:
        """Search once with each of the given queries, which all have a family, in order."""
        return self._search_one_kind(indices, True, max_evalue)

    def _search_one_kind(
        self, indices: Iterable[int], of_families: bool, max_evalue: float
    ) -> Iterator[tuple[int, QueryHits]]:
        """Search with queries that all have a family, or all have none."""
        taken: deque[int] = deque()
        before = self._filtered_pairs
        self._all_taken = False

        def profiles() -> Iterator[QueryProfile | Family]:
            for k in indices:
                taken.append(k)
                self._filtered_pairs += len(self._search.database)
                yield self._families[k] if of_families else self._profile(k)
            self._all_taken = True

        def progress(pairs: int) -> None:
            # the end of one iteration overlaps with the next
            self._reported_pairs = max(self._reported_pairs, before + pairs)
            self._progress(self._reported_pairs)

        for result in self._search.search_once(profiles(), of_families, max_evalue, progress):
            yield taken.popleft(), result

    def _profile(self, k: int) -> QueryProfile:
        """Return the current profile of a query."""
        if k in self._families:
            return self._families[k].profile
        # recomputed each time instead of stored: there may be very many queries
        return initial_profile(self._queries[k], self._search.settings)
