"""Searches for the chains of a run's targets: each distinct chain once for all of them.

The alignments of chains are stored in the feature cache by fingerprint, where later runs with the same chains
find them. While a run searches a chain, it holds the chain's lock.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from features.chemistry.residues import check_foldable
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.logs import log_time_since_start, logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.target import measured_stage
from foldcli.pipeline.search.protocols import ComplexStore
from foldcli.pipeline.search.stage import SearchResult, SearchStage
from foldcli.pipeline.search.stores import ChainStore
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.order import FIRST_BATCH, SEARCH_BATCH
from foldcli.progress import Progress
from msa.base.atomic import writing_cache
from msa.io.fasta import FastaRecord
from msa.io.molecules import PROTEIN
from msa.search.database_search import check_query

T = TypeVar("T")

# names and queries of chains, by fingerprint
_Queries: TypeAlias = dict[str, tuple[str, FastaRecord]]


@dataclass(frozen=True)
class ChainSearchResult(Generic[T]):
    """A target whose chains have all been searched, or one of whose chains failed.

    Args:
        error: the error of the first chain that failed.
        cost: the target's share of the searches; None if there were none.
    """

    target: T
    error: Exception | None = None
    cost: StageCost | None = None


@dataclass(frozen=True)
class ChainSearch:
    """Searches of chains, each of which serves all targets of a run.

    Args:
        locks: a chain is locked while it is searched.
        first_batch: number of chains that are searched together at first; each further batch is twice as
            large, up to `SEARCH_BATCH`. Targets come when all chains of their batch are searched.
    """

    stage: SearchStage
    store: ChainStore
    locks: TargetLocks
    first_batch: int = FIRST_BATCH

    def search_ahead(
        self,
        targets: Iterable[T],
        chains_of: Callable[[T], Sequence[FastaRecord]],
        show_status: Callable[[str], None] | None = None,
    ) -> Iterator[ChainSearchResult[T]]:
        """Yield all targets; one with chains comes once these have alignments from searches in batches.

        Targets with a chain that another run searches come last.

        Args:
            targets: all targets of the run.
            chains_of: returns the chains of a target to search; a target without any is passed on.
            show_status: called with descriptions of the progress; None for the progress of the stage.
        """
        waiting: list[tuple[T, _Queries]] = []
        searched_elsewhere: list[tuple[T, _Queries]] = []
        batch: _Queries = {}
        size = self.first_batch
        for target in targets:
            try:
                queries = self._named_queries(chains_of(target))
                unfinished = self._unfinished(queries)
            except Exception as error:
                yield ChainSearchResult(target, error)
                continue
            if not unfinished:
                yield ChainSearchResult(target)
                continue
            batch = unfinished | batch  # a chain has the name of its first target
            waiting.append((target, queries))
            if len(batch) >= size:
                yield from self._search_batch(waiting, batch, searched_elsewhere, show_status)
                waiting, batch, size = [], {}, max(size, min(2 * size, SEARCH_BATCH))
        if batch:
            yield from self._search_batch(waiting, batch, searched_elsewhere, show_status)
        for target, queries in searched_elsewhere:
            unfinished = self._unfinished(queries)
            with measured_stage("search") as costs:
                errors = dict(self._search_or_wait(unfinished))
            if len(errors) < len(unfinished):
                return  # the run ends
            yield ChainSearchResult(target, _first_error(queries, errors), costs[0])

    def _search_batch(
        self,
        targets: Sequence[tuple[T, _Queries]],
        batch: _Queries,
        searched_elsewhere: list[tuple[T, _Queries]],
        show_status: Callable[[str], None] | None,
    ) -> Iterator[ChainSearchResult[T]]:
        """Search the chains that no other run searches; yield the targets that need no others.

        Args:
            targets: the targets of the batch.
            batch: all chains that they need.
            searched_elsewhere: gets the other targets.
            show_status: see `search_ahead`.
        """
        text = f"searching with {len(batch)} sequence{'' if len(batch) == 1 else 's'}"
        logger.debug("%s", text)

        def progress(done: int, total: int | None) -> None:
            assert show_status is not None
            show_status(f"{text}, {100 * done // total} %" if total else text)

        if show_status is not None:
            show_status(text)
        with measured_stage("search") as costs:
            locked, errors = self._try_locks(batch)
            errors |= self._search_locked(locked, None if show_status is None else progress)
        log_time_since_start(f"{len(batch)} sequences were searched")
        cost = replace(costs[0], seconds=costs[0].seconds / len(targets))
        for target, queries in targets:
            if (queries.keys() & batch.keys()) <= errors.keys():
                yield ChainSearchResult(target, _first_error(queries, errors), cost)
            else:
                searched_elsewhere.append((target, queries))

    def search_complexes(
        self, named_complexes: Iterable[tuple[str, Complex]], store: ComplexStore
    ) -> Iterator[SearchResult]:
        """Search the chains of complexes, and store the alignment of each; yield the outcomes in any order.

        One failure does not stop the others.
        """
        for result in self.search_ahead(named_complexes, lambda pair: pair[1].chains):
            (name, target), error = result.target, result.error
            if error is None:
                try:
                    alignments = [self.store.read(chain_query(chain)) for chain in target.chains]
                    store.write_complex(name, target, alignments)
                except Exception as failure:
                    error = failure
            yield SearchResult(name, target, error)

    def _named_queries(self, chains: Sequence[FastaRecord]) -> _Queries:
        """Return the names and the queries of the distinct chains of a target by fingerprint."""
        for chain in chains:
            check_query(chain)
            if self.stage.settings.search.molecule == PROTEIN:
                check_foldable(chain.sequence)
        queries = ((chain.id, chain_query(chain)) for chain in dict.fromkeys(chains))
        return {self.store.store.request.fingerprint(query): (name, query) for name, query in queries}

    def _unfinished(self, queries: _Queries) -> _Queries:
        """Return the queries that have not been searched; remove locks that killed runs left at others."""
        unfinished = {key: pair for key, pair in queries.items() if not self.store.is_finished(*pair)}
        for key in queries.keys() - unfinished.keys():
            path = self.store.lock(queries[key][1])
            # the cache may be readable only
            with contextlib.suppress(OSError):
                if path.exists() and self.locks.try_acquire(path):
                    self.locks.release(path)
        return unfinished

    def _try_locks(self, queries: _Queries) -> tuple[_Queries, dict[str, Exception | None]]:
        """Lock the chains that no other run has locked; return them, and the errors of the others."""
        locked: _Queries = {}
        errors: dict[str, Exception | None] = {}
        for key, pair in queries.items():
            try:
                with writing_cache(self.store.store.cache):
                    if self.locks.try_acquire(self.store.lock(pair[1])):
                        locked[key] = pair
            except Exception as error:
                errors[key] = error
        return locked, errors

    def search_each(self, chains: Sequence[FastaRecord]) -> Iterator[tuple[FastaRecord, Exception | None]]:
        """Yield different chains as they are searched, each with its error if it has failed."""
        queries: _Queries = {}
        chain_of: dict[str, FastaRecord] = {}
        for chain in chains:
            ((key, pair),) = self._named_queries([chain]).items()
            chain_of[key], queries[key] = chain, pair
        unfinished = self._unfinished(queries)
        for key in queries.keys() - unfinished.keys():
            yield chain_of[key], None
        for key, error in self._search_or_wait(unfinished):
            yield chain_of[key], error

    def _search_or_wait(self, queries: _Queries) -> Iterator[tuple[str, Exception | None]]:
        """Search chains, and wait for those that other runs are searching, until the run ends.

        A run that waits for a chain holds no chain's lock, so that two runs do not wait for each other.

        Yields:
            The fingerprint of each chain, and its error if it has failed.
        """
        locked, errors = self._try_locks(queries)
        yield from errors.items()
        yield from self._search_locked(locked)
        for key, (name, query) in queries.items():
            if key in locked or key in errors:
                continue
            if not self.locks.acquire(self.store.lock(query), name):
                return
            yield from self._search_locked({key: (name, query)})

    def _search_locked(
        self, queries: _Queries, progress: Progress | None = None
    ) -> Iterator[tuple[str, Exception | None]]:
        """Search chains whose locks are held, unless another run has just done so, and release the locks."""
        try:
            unfinished = {key: pair for key, pair in queries.items() if not self.store.is_finished(*pair)}
            for key in queries.keys() - unfinished.keys():
                yield key, None
            results = self.stage.run(list(unfinished.values()), self.store, progress=progress)
            for (key, (_, query)), result in zip(unfinished.items(), results, strict=True):
                self.locks.release(self.store.lock(query))
                yield key, result.error
        finally:
            for _, query in queries.values():
                self.locks.release(self.store.lock(query))


def _first_error(queries: _Queries, errors: Mapping[str, Exception | None]) -> Exception | None:
    """Return the error of the first of a target's chains that has failed; None without."""
    return next((error for key in queries if (error := errors.get(key)) is not None), None)
