"""Iterated searches: each iteration searches with a profile of the previous hits, as in PSI-BLAST."""

import contextlib
import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from queue import SimpleQueue

from msa.database.database import TargetDatabase
from msa.engines.engine import Engine, ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits, QueryHits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.search.families.builder import FamilyBuilder, update_in_process
from msa.search.families.family import ProfileFamily, initial_profile
from msa.search.profile_search import ProfileSearch

_MAX_FAMILY_THREADS = 8
"""Maximum number of threads that update families; more of them would hold the interpreter lock for so long
that a GPU has to wait."""


@dataclass(frozen=True)
class _Update:
    """An update of a query's family.

    Args:
        query: index of the query.
        result: its hits in one iteration.
        future: its family for the next iteration; None if it stays the same.
    """

    query: int
    result: QueryHits
    future: "Future[ProfileFamily | None]"


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
    def family_builder(self) -> FamilyBuilder:
        """Builder of families; CPU threads are divided among the families that are built at once."""
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
        with self._family_threads() as pool:
            state, settings = _Iterations(self, queries, progress, pool), self.settings
            everything = range(len(queries))
            if settings.num_iterations == 1:
                last = state.search_queries(everything, settings.evalue)
            else:
                active = state.update_families(state.search_queries(everything, settings.e_profile))
                for _ in range(settings.num_iterations - 2):
                    active = state.update_families(state.search_one_kind(active, True, settings.e_profile))
                if settings.evalue <= settings.e_profile:
                    last = state.search_one_kind(active, True, settings.evalue)
                else:
                    # all queries take part, as soon as all families are known
                    deque(active, maxlen=0)
                    last = state.search_queries(everything, settings.evalue)
            next_query = 0
            for k, result in last:
                state.final_hits[k] = result.hits
                while next_query in state.final_hits:
                    yield state.finish(next_query, on_profile)
                    next_query += 1
            for k in range(next_query, len(queries)):
                yield state.finish(k, on_profile)

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
            state, settings = _Iterations(self, queries, progress, pool), self.settings
            active = list(range(len(queries)))
            for hits_of in earlier:
                active = sorted(state.update_families((k, hits_of(k)) for k in active))
            state.final_hits.clear()
            is_last = len(earlier) + 1 == settings.num_iterations
            if is_last and settings.evalue > settings.e_profile:
                active = list(range(len(queries)))
            yield from state.search_queries(active, settings.evalue if is_last else settings.e_profile)

    def update_family(
        self, query: FastaRecord, family: ProfileFamily | None, hits: Hits
    ) -> ProfileFamily | None:
        """Build the family for the next iteration, if possible in another process; see FamilyBuilder."""
        processes = self.engine.processes
        if processes is None or not processes.have_started:
            return self.family_builder.update(query, family, hits)
        settings = replace(self.settings, threads=1)
        return update_in_process(processes, self.database, settings, query, family, hits)

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
    """The state of one iterated search; arguments as for `IteratedSearch.run`.

    Attributes:
        final_hits: by query index, final hits of queries that have left the search.
    """

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
            if isinstance(query, ProfileRecord) and query.of_family
        }
        # by query index: queries with a family
        self._families: dict[int, ProfileFamily] = {k: family.result() for k, family in from_profile.items()}
        self.final_hits: dict[int, Hits] = {}
        self._filtered_pairs = self._reported_pairs = 0
        self._progress_lock = threading.Lock()
        # whether the engine has taken all queries of the current search
        self._all_taken = False

    def finish(self, k: int, on_profile: ProfileCallback | None) -> Hits:
        """Return the final hits of a query."""
        if on_profile is not None:
            on_profile(self._queries[k], self._profile(k), k in self._families)
        return self.final_hits.pop(k)

    def update_families(self, results: Iterable[tuple[int, QueryHits]]) -> Iterator[int]:
        """Run one iteration until a GPU engine has taken all queries; return those whose family changed.

        They are yielded in the order in which they become known. The engine therefore works on the next
        iteration while it finishes the last queries of this one, and while families are still being updated.
        """
        updates = (self._start_update(k, result) for k, result in results)
        started: list[_Update] = []
        for update in updates:
            started.append(update)
            if self._all_taken and self._search.engine.drives_gpus:
                break
        return self._changed_families(started, updates)

    def _start_update(self, k: int, result: QueryHits) -> _Update:
        """Start to update the family of a query."""
        arguments = self._queries[k], self._families.get(k), result.member_hits
        return _Update(k, result, self._pool.submit(self._search.update_family, *arguments))

    def _changed_families(self, started: Sequence[_Update], others: Iterator[_Update]) -> Iterator[int]:
        """Yield the queries whose family changed; the others may leave the search.

        Args:
            started: the first updates.
            others: the other updates, which start when they are taken; a thread takes them.
        """
        settings = self._search.settings
        for update in in_order_of_completion(started, others):
            k, hits, family = update.query, update.result.hits, update.future.result()
            if family is not None:
                self._families[k] = family
                yield k
            elif settings.evalue <= settings.e_profile:
                passing = hits.subset(hits.evalues <= settings.evalue)
                capped = hits.capped and len(passing) == len(hits)
                self.final_hits[k] = replace(passing, capped=capped)

    def search_queries(self, indices: Sequence[int], max_evalue: float) -> Iterator[tuple[int, QueryHits]]:
        """Search once with each of the given queries, in order.

        Queries with and without a family have different gap costs and need separate engine calls.
        """
        without_family = [k for k in indices if k not in self._families]
        with_family = [k for k in indices if k in self._families]
        first = self.search_one_kind(without_family, False, max_evalue)
        second = self.search_one_kind(with_family, True, max_evalue)
        if not without_family or not with_family:
            return first if without_family else second
        # only one engine call may be active: finish the first before the second starts
        return heapq.merge(list(first), second, key=lambda found: found[0])

    def search_one_kind(
        self, indices: Iterable[int], of_families: bool, max_evalue: float
    ) -> Iterator[tuple[int, QueryHits]]:
        """Search once with queries that all have a family, or all have none, in the order given."""
        taken: deque[int] = deque()
        before = self._filtered_pairs
        self._all_taken = False

        def profiles() -> Iterator[QueryProfile | ProfileFamily]:
            for k in indices:
                taken.append(k)
                self._filtered_pairs += len(self._search.database)
                yield self._families[k] if of_families else self._profile(k)
            self._all_taken = True

        def progress(pairs: int) -> None:
            # the end of one iteration overlaps with the next
            with self._progress_lock:
                self._reported_pairs = max(self._reported_pairs, before + pairs)
                self._progress(self._reported_pairs)

        one = self._search
        search = ProfileSearch(
            one.database, one.settings, one.engine, of_families, max_evalue, one.keep_filtered, one.keep_all
        )
        for result in search.run(profiles(), progress):
            yield taken.popleft(), result

    def _profile(self, k: int) -> QueryProfile:
        """Return the current profile of a query."""
        if k in self._families:
            return self._families[k].profile
        # recomputed each time instead of stored: there may be very many queries
        return initial_profile(self._queries[k], self._search.settings)


def in_order_of_completion(started: Sequence[_Update], others: Iterable[_Update]) -> Iterator[_Update]:
    """Yield updates as soon as their futures are done.

    Args:
        started: the first tasks.
        others: further tasks, which start when they are taken; a thread takes all of them. An error of this
            iterable is raised here.
    """
    completed: SimpleQueue[_Update | None] = SimpleQueue()

    def watch(task: _Update) -> None:
        task.future.add_done_callback(lambda done: completed.put(task))

    def start_others() -> int:
        count = 0
        for task in others:
            watch(task)
            count += 1
        return count

    thread = ThreadPoolExecutor(1, "last results")
    try:
        for task in started:
            watch(task)
        num_others = thread.submit(start_others)
        num_others.add_done_callback(lambda done: completed.put(None))
        remaining, all_started = len(started), False
        # negative while more tasks are completed than are known to have started
        while remaining or not all_started:
            found = completed.get()
            if found is None:
                remaining, all_started = remaining + num_others.result(), True
            else:
                remaining -= 1
                yield found
    finally:
        thread.shutdown()
