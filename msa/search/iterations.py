"""Iterated searches: each iteration searches with a profile of the previous hits, as in PSI-BLAST."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileQuery
from msa.profile.statistics import bit_scores, corrected_scores, evalues
from msa.search.engine import Engine, EngineRequest, ProfileCallback, QueryProfile
from msa.search.families import MEMBER_CORRECTION_WEIGHT, Family, FamilyBuilder
from msa.search.hits import DatabaseHit, Hit
from msa.search.settings import SearchSettings

_MAX_FAMILY_THREADS = 4
"""With more threads, which share the interpreter lock, a GPU would have to wait for its next queries."""


@dataclass(frozen=True)
class QueryHits:
    """The hits of one query in one iteration.

    Args:
        hits: by E-value, then score, then database order.
        member_hits: hits with an E-value small enough to join the query's family.
    """

    hits: list[Hit]
    member_hits: list[Hit]


@dataclass(frozen=True)
class IteratedSearch:
    """A search with one or more iterations.

    Args:
        database: the database to search.
        settings: see SearchSettings.
        engine: filters and aligns.
        max_queries: maximum number of queries in a call of `run`.
    """

    database: TargetDatabase
    settings: SearchSettings
    engine: Engine
    max_queries: int = 1

    @cached_property
    def family_builder(self) -> FamilyBuilder:
        """Builder of families; CPU threads are divided among the families that are built at once."""
        threads = max(1, self.settings.threads // self.max_queries)
        return FamilyBuilder(self.database, replace(self.settings, threads=threads))

    def run(
        self,
        queries: Sequence[FastaRecord],
        progress: Callable[[int], None],
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[list[Hit]]:
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
        with self._family_threads() as pool:
            yield from _Iterations(self, queries, progress, pool).run(on_profile)

    def search_once(
        self,
        profiles: Iterable[QueryProfile],
        lengths: Sequence[int],
        max_evalue: float,
        progress: Callable[[int], None],
        k_factors: Sequence[float] | None = None,
    ) -> Iterator[QueryHits]:
        """Search with each profile once.

        Args:
            profiles: consumed lazily, as the engine has capacity.
            lengths: residues of each query.
            max_evalue: largest E-value of a hit.
            progress: see `run`.
            k_factors: see Family; None if the profiles are not family profiles.

        Returns:
            The hits of each query, in order.
        """
        database, settings = self.database, self.settings
        targets = database.arrays
        if k_factors is None:
            parameters = gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)
        else:
            settings, parameters = self.family_builder.family_settings, self.family_builder.family_parameters
        factors = k_factors or [1.0] * len(lengths)
        parameters_by_query = [replace(parameters, k=parameters.k * factor) for factor in factors]

        def target_evalues(query: int, indices: np.ndarray, scores: np.ndarray) -> np.ndarray:
            return evalues(
                scores,
                lengths[query],
                targets.lengths[indices],
                database.total_residues,
                parameters_by_query[query],
            )

        def correct(
            query: int, indices: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray, weight: int = 1
        ) -> np.ndarray:
            target_lengths = targets.lengths[indices]
            return corrected_scores(
                scores, reversed_scores, lengths[query], target_lengths, parameters, weight
            )

        def select(
            query: int, indices: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
        ) -> np.ndarray:
            if reversed_scores is not None:
                scores = correct(query, indices, scores, reversed_scores)
            return target_evalues(query, indices, scores) <= max_evalue

        results = self.engine.run(profiles, EngineRequest(targets, settings, progress, select))
        for query, candidates in enumerate(results):
            indices, raw = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
            scores = member_scores = raw
            if settings.comp_bias_corr:
                reversed_scores = candidates.reversed_scores
                scores = correct(query, indices, raw, reversed_scores)
                member_scores = correct(query, indices, raw, reversed_scores, MEMBER_CORRECTION_WEIGHT)
            hit_evalues = target_evalues(query, indices, scores)
            bits = bit_scores(scores, parameters_by_query[query])
            is_member = target_evalues(query, indices, member_scores) <= settings.e_profile
            order = np.lexsort((indices, -raw, hit_evalues))
            columns = indices.tolist(), bits.tolist(), hit_evalues.tolist(), candidates.alignments
            unordered = [DatabaseHit(database, lengths[query], *row) for row in zip(*columns, strict=True)]
            hits: list[Hit] = [unordered[k] for k in order.tolist()]
            yield QueryHits(hits, [hits[k] for k in np.flatnonzero(is_member[order]).tolist()])

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
    ) -> None:
        self._search, self._queries, self._progress, self._pool = search, queries, progress, pool
        from_profile = {
            k: pool.submit(search.family_builder.from_profile, query)
            for k, query in enumerate(queries)
            if isinstance(query, ProfileQuery) and query.of_family
        }
        # by query index: queries with a family, and final hits of queries that have left the search
        self._families: dict[int, Family] = {k: family.result() for k, family in from_profile.items()}
        self._final_hits: dict[int, list[Hit]] = {}
        self._filtered_pairs = 0

    def run(self, on_profile: ProfileCallback | None) -> Iterator[list[Hit]]:
        """Run all iterations and yield the hits of each query."""
        settings = self._search.settings
        active = list(range(len(self._queries)))
        for _ in range(settings.num_iterations - 1):
            active = self._update_families(active)
        remaining = [k for k in range(len(self._queries)) if k not in self._final_hits]
        last = self._search_queries(remaining, settings.evalue)
        for k, query in enumerate(self._queries):
            hits = self._final_hits[k] if k in self._final_hits else next(last).hits
            if on_profile is not None:
                on_profile(query, self._profile(k), k in self._families)
            yield hits

    def _update_families(self, active: Sequence[int]) -> list[int]:
        """Run one iteration for some queries; return those whose family changed."""
        settings, builder = self._search.settings, self._search.family_builder
        updates = [
            (
                k,
                result,
                self._pool.submit(
                    builder.update, self._queries[k], self._families.get(k), result.member_hits
                ),
            )
            for k, result in zip(active, self._search_queries(active, settings.e_profile), strict=True)
        ]
        changed = []
        for k, result, update in updates:
            family = update.result()
            if family is not None:
                self._families[k] = family
                changed.append(k)
            elif settings.evalue <= settings.e_profile:
                self._final_hits[k] = [hit for hit in result.hits if hit.evalue <= settings.evalue]
        return changed

    def _search_queries(self, indices: Sequence[int], max_evalue: float) -> Iterator[QueryHits]:
        """Search once with each of the given queries, in order.

        Queries with and without a family have different gap costs and need separate engine calls.
        """
        without_family = [k for k in indices if k not in self._families]
        with_family = [k for k in indices if k in self._families]
        if not without_family or not with_family:
            yield from self._search_one_kind(indices, max_evalue)
            return
        first, second = (
            iter(zip(kind, self._search_one_kind(kind, max_evalue), strict=True))
            for kind in (without_family, with_family)
        )
        waiting: dict[int, QueryHits] = {}
        family_queries = set(with_family)
        for k in indices:
            if k in family_queries:
                # only one engine call may be active: finish the first before the second starts
                waiting.update(first)
                waiting.update([next(second)])
            elif k not in waiting:
                waiting.update([next(first)])
            yield waiting.pop(k)

    def _search_one_kind(self, indices: Sequence[int], max_evalue: float) -> Iterator[QueryHits]:
        """Search with queries that all have a family, or all have none."""
        lengths = [len(self._queries[k].sequence) for k in indices]
        k_factors = [self._families[k].k_factor for k in indices if k in self._families] or None
        before = self._filtered_pairs
        yield from self._search.search_once(
            map(self._profile, indices),
            lengths,
            max_evalue,
            lambda pairs: self._progress(before + pairs),
            k_factors,
        )
        self._filtered_pairs += len(indices) * len(self._search.database)

    def _profile(self, k: int) -> QueryProfile:
        """Return the current profile of a query."""
        if k in self._families:
            return self._families[k].profile
        # recomputed each time instead of stored: there may be very many queries
        return self._search.family_builder.initial_profile(self._queries[k])
