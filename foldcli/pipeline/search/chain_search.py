"""Searches for the chains of complexes: each distinct chain once for all complexes of a run.

The alignments of chains are stored in the feature cache by fingerprint, where later runs with the same chains
find them. While a run searches a chain, it holds the chain's lock.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from features.chemistry.residues import check_foldable
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.target import measured_stage
from foldcli.pipeline.search.hit_texts import HitTexts
from foldcli.pipeline.search.stage import SEARCH_BATCH, SearchResult, SearchStage
from foldcli.pipeline.search.stores import CacheStore, ComplexStore
from foldcli.pipeline.targets.locks import TargetLocks
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.io.molecules import PROTEIN
from msa.search.database_search import check_query

T = TypeVar("T")

LARGE_BATCH = 1024
"""Number of chains that are searched together if nothing else waits for the first ones. The hits of all are
in memory: about a megabyte for 10,000."""

# name of all files of chains
_NAME = "chain"
_TAB = "\t"


@dataclass(frozen=True)
class ChainStore:
    """The alignments and the tables of hits of chains.

    Args:
        store: location of the alignments; the tables are next to them.
    """

    store: CacheStore

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return True if a chain has been searched; the name does not matter."""
        return self.store.is_finished(_NAME, query) and self._table(query).is_file()

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Write a chain's hits and their alignment; the name appears in messages only."""
        self.store.write_file(self._table(query), texts.table)
        self.store.write(_NAME, query, texts)
        if texts.capped:
            limit = self.store.request.settings.search.max_seqs
            reason = f"the search reached --max-seqs {limit}; further sequences were left out"
            logger.warning("%s: %s", name, reason)

    def read(self, query: FastaRecord) -> bytes:
        """Return the A3M file of a chain.

        Raises:
            InputError: the file is damaged.
        """
        return read_bytes(self.store.path(_NAME, query))

    def read_hits(self, query: FastaRecord, name: str) -> str:
        """Return the table of a chain's hits (`m8.DEFAULT_COLUMNS`) with another name of the query.

        Raises:
            InputError: the file is damaged.
        """
        lines = read_bytes(self._table(query)).decode().splitlines(keepends=True)
        return "".join(f"{name}\t{line.partition(_TAB)[2]}" for line in lines)

    def _table(self, query: FastaRecord) -> Path:
        return self.store.path(_NAME, query).with_name(f"{_NAME}.m8.gz")

    def lock(self, query: FastaRecord) -> Path:
        """Return the path of the lock that a run holds while it searches a chain."""
        return self.store.path(_NAME, query).with_name(".lock")


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
        batch: number of chains that are searched together. Targets come when all of them are searched.
    """

    stage: SearchStage
    store: ChainStore
    locks: TargetLocks
    batch: int = SEARCH_BATCH

    def search_ahead(
        self,
        targets: Iterable[T],
        chains_of: Callable[[T], Sequence[FastaRecord]],
        show_status: Callable[[str], None] = lambda text: None,
    ) -> Iterator[ChainSearchResult[T]]:
        """Yield all targets; one with chains comes once these have alignments from searches in batches.

        Args:
            targets: all targets of the run.
            chains_of: returns the chains of a target to search; a target without any is passed on.
            show_status: called with descriptions of the progress.
        """
        waiting_targets: list[tuple[T, dict[str, FastaRecord]]] = []
        # names and queries by fingerprint
        unsearched: dict[str, tuple[str, FastaRecord]] = {}

        def search_batch() -> Iterator[ChainSearchResult[T]]:
            text = f"searching with {len(unsearched)} chain{'s' if len(unsearched) > 1 else ''}"
            logger.debug("%s", text)
            show_status(text)
            with measured_stage("search") as costs:
                errors = {key: error for key, error in self._search_or_wait(unsearched) if error is not None}
            cost = replace(costs[0], seconds=costs[0].seconds / len(waiting_targets))
            for target, queries in waiting_targets:
                error = next((errors[key] for key in queries if key in errors), None)
                yield ChainSearchResult(target, error, cost)
            waiting_targets.clear()
            unsearched.clear()

        for target in targets:
            try:
                named_queries = self._named_queries(chains_of(target))
                unfinished = {
                    key: pair for key, pair in named_queries.items() if not self.store.is_finished(*pair)
                }
                for key in named_queries.keys() - unfinished.keys():
                    self._remove_lock_of_killed_run(named_queries[key][1])
            except Exception as error:
                yield ChainSearchResult(target, error)
                continue
            if not unfinished:
                yield ChainSearchResult(target)
                continue
            waiting_targets.append((target, {key: query for key, (_, query) in named_queries.items()}))
            unsearched.update({key: pair for key, pair in unfinished.items() if key not in unsearched})
            if len(unsearched) >= self.batch:
                yield from search_batch()
        if waiting_targets:
            yield from search_batch()

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

    def _named_queries(self, chains: Sequence[FastaRecord]) -> dict[str, tuple[str, FastaRecord]]:
        """Return the names and the queries of the distinct chains of a target by fingerprint."""
        for chain in chains:
            check_query(chain)
            if self.stage.settings.search.molecule == PROTEIN:
                check_foldable(chain.sequence)
        queries = ((chain.id, chain_query(chain)) for chain in dict.fromkeys(chains))
        return {self.store.store.request.fingerprint(query): (name, query) for name, query in queries}

    def _remove_lock_of_killed_run(self, query: FastaRecord) -> None:
        """Remove the lock of a searched chain, if the run that searched it was killed before it could."""
        path = self.store.lock(query)
        # the cache may be readable only
        with contextlib.suppress(OSError):
            if path.exists() and self.locks.try_acquire(path):
                self.locks.release(path)

    def search_each(self, chains: Sequence[FastaRecord]) -> Iterator[tuple[FastaRecord, Exception | None]]:
        """Yield different chains as they are searched, each with its error if it has failed."""
        unsearched: dict[str, tuple[str, FastaRecord]] = {}
        chain_of: dict[str, FastaRecord] = {}
        for chain in chains:
            ((key, pair),) = self._named_queries([chain]).items()
            chain_of[key] = chain
            if self.store.is_finished(*pair):
                self._remove_lock_of_killed_run(pair[1])
                yield chain, None
            else:
                unsearched[key] = pair
        for key, error in self._search_or_wait(unsearched):
            yield chain_of[key], error

    def _search_or_wait(
        self, unsearched: Mapping[str, tuple[str, FastaRecord]]
    ) -> Iterator[tuple[str, Exception | None]]:
        """Search chains, and wait for those that other runs are searching.

        A run that waits for a chain holds no chain's lock, so that two runs do not wait for each other.

        Yields:
            The fingerprint of each chain, and its error if it has failed.
        """
        locked_elsewhere = {
            key: (name, query)
            for key, (name, query) in unsearched.items()
            if not self.locks.try_acquire(self.store.lock(query))
        }
        yield from self._search_locked(
            {key: pair for key, pair in unsearched.items() if key not in locked_elsewhere}
        )
        for key, (name, query) in locked_elsewhere.items():
            if not self.locks.acquire(self.store.lock(query), name):
                break
            yield from self._search_locked({key: (name, query)})

    def _search_locked(
        self, named_queries: Mapping[str, tuple[str, FastaRecord]]
    ) -> Iterator[tuple[str, Exception | None]]:
        """Search chains whose locks are held, unless another run has just done so, and release the locks."""
        try:
            unfinished = {k: pair for k, pair in named_queries.items() if not self.store.is_finished(*pair)}
            for key in named_queries.keys() - unfinished.keys():
                yield key, None
            results = self.stage.run(list(unfinished.values()), self.store)
            for key, result in zip(unfinished, results, strict=True):
                assert isinstance(result.query, FastaRecord)
                self.locks.release(self.store.lock(result.query))
                yield key, result.error
        finally:
            for _, query in named_queries.values():
                self.locks.release(self.store.lock(query))
