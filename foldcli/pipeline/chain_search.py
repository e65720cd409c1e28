"""The search stage of complexes: each distinct chain of a run is searched once, for all its complexes.

The alignments of chains are stored in the feature cache by fingerprint, so that an interrupted run, and other
runs with the same chains, find them there. While a run searches a chain, it holds the chain's lock.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foldcli.inputs.complexes import Complex
from foldcli.logs import logger
from foldcli.pipeline.alignment_stores import CacheStore
from foldcli.pipeline.features import check_foldable
from foldcli.pipeline.identity import chain_query
from foldcli.pipeline.locks import TargetLocks
from foldcli.pipeline.search_stage import SEARCH_BATCH, SearchStage
from foldcli.pipeline.target_run import TargetRun, measured_stage
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.search.hits import Hits
from msa.search.search import check_query

_NAME = "chain"


@dataclass(frozen=True)
class ChainStore:
    """The alignments of chains.

    Args:
        store: location of the alignments.
    """

    store: CacheStore

    def key(self, query: FastaRecord) -> str:
        """Return the fingerprint of a chain's alignment."""
        return self.store.request.key(query)

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return True if a chain has been searched."""
        return self.store.is_finished(name, query)

    def write(self, name: str, query: FastaRecord, hits: Hits) -> None:
        """Write the alignment of a chain's hits.

        Raises:
            OSError: the cache cannot be written.
        """
        self.store.write(name, query, hits)
        if hits.capped:
            residues, limit = len(query.sequence), self.store.request.settings.search.max_seqs
            reason = f"the search reached --max-seqs {limit}; further sequences were left out"
            logger.warning("a chain of %d residues: %s", residues, reason)

    def read(self, query: FastaRecord) -> bytes:
        """Return the A3M file of a chain.

        Raises:
            InputError: the file is damaged.
            OSError: the file cannot be read.
        """
        return read_bytes(self.store.path(_NAME, query))

    def lock(self, query: FastaRecord) -> Path:
        """Return the path of the lock that a run holds while it searches a chain."""
        return self.store.path(_NAME, query).with_name(".lock")


def search_chains_ahead(
    targets: Iterable[TargetRun],
    stage: SearchStage,
    chains: ChainStore,
    locks: TargetLocks,
    fail: Callable[[TargetRun, BaseException], None],
    show: Callable[[str], None],
) -> Iterator[TargetRun]:
    """Yield targets, complexes once all their chains are searched; chains are searched in batches.

    Args:
        targets: all targets of the run; those that are not complexes are passed on.
        stage: the searches.
        chains: location of the alignments.
        locks: a chain is locked while it is searched.
        fail: called with each complex that fails and its error.
        show: called with descriptions of the progress.
    """
    waiting: list[tuple[TargetRun, dict[str, FastaRecord]]] = []
    missing: dict[str, FastaRecord] = {}

    def search_batch() -> Iterator[TargetRun]:
        text = f"searching with {len(missing)} chain{'s' if len(missing) > 1 else ''}"
        logger.debug("%s", text)
        show(text)
        with measured_stage("search") as costs:
            errors = _search(missing, stage, chains, locks)
        cost = replace(costs[0], seconds=costs[0].seconds / len(waiting))
        for target, queries in waiting:
            error = next((errors[key] for key in queries if key in errors), None)
            if error is not None:
                fail(target, error)
                continue
            target.add_cost(cost)
            yield target
        waiting.clear()
        missing.clear()

    for target in targets:
        if not isinstance(target.input, Complex):
            yield target
            continue
        try:
            own = _queries(target.input, chains)
            unfinished = {key: query for key, query in own.items() if not chains.is_finished(_NAME, query)}
            for key in own.keys() - unfinished.keys():
                _remove_lock_of_killed_run(chains.lock(own[key]), locks)
        except Exception as error:
            fail(target, error)
            continue
        if not unfinished:
            yield target
            continue
        waiting.append((target, own))
        missing.update(unfinished)
        if len(missing) >= SEARCH_BATCH:
            yield from search_batch()
    if waiting:
        yield from search_batch()


def _queries(target: Complex, chains: ChainStore) -> dict[str, FastaRecord]:
    """Return the distinct queries of a complex by their keys.

    Raises:
        InputError: a chain cannot be searched with, or has none of the twenty residues.
    """
    for chain in target.chains:
        check_query(chain)
        check_foldable(chain.sequence)
    queries = map(chain_query, dict.fromkeys(target.chains))
    return {chains.key(query): query for query in queries}


def _remove_lock_of_killed_run(path: Path, locks: TargetLocks) -> None:
    """Remove the lock of a searched chain, if the run that searched it was killed before it could."""
    # the cache may be readable only
    with contextlib.suppress(OSError):
        if path.exists() and locks.try_acquire(path):
            locks.release(path)


def _search(
    missing: Mapping[str, FastaRecord], stage: SearchStage, chains: ChainStore, locks: TargetLocks
) -> dict[str, Exception]:
    """Search chains, and wait for those that other runs are searching; return errors by key.

    A run that waits for a chain holds no chain's lock, so that two runs do not wait for each other.
    """
    elsewhere = [query for query in missing.values() if not locks.try_acquire(chains.lock(query))]
    others = {chains.key(query) for query in elsewhere}
    errors = _search_locked(
        [query for key, query in missing.items() if key not in others], stage, chains, locks
    )
    for query in elsewhere:
        if not locks.acquire(chains.lock(query), "a chain"):
            break
        errors |= _search_locked([query], stage, chains, locks)
    return errors


def _search_locked(
    queries: Sequence[FastaRecord], stage: SearchStage, chains: ChainStore, locks: TargetLocks
) -> dict[str, Exception]:
    """Search chains whose locks are held, unless another run has just done so, and release the locks."""
    errors = {}
    try:
        named = [(_NAME, query) for query in queries if not chains.is_finished(_NAME, query)]
        for result in stage.run(named, chains):
            if result.error is not None:
                errors[chains.key(result.query)] = result.error
            locks.release(chains.lock(result.query))
    finally:
        for query in queries:
            locks.release(chains.lock(query))
    return errors
