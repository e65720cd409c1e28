"""The search stage: search queries in batches, and store the alignments of their hits."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from foldcli.errors import ServerLost
from foldcli.inputs.complexes import Complex
from foldcli.logs import log_time_since_start, logger
from foldcli.pipeline.alignment_stores import AlignmentStore, TargetStore
from foldcli.pipeline.identity import AlignmentRequest
from foldcli.pipeline.locks import TargetLocks
from foldcli.pipeline.settings import FIRST_BATCH, AlignmentSettings
from foldcli.pipeline.target_plan import TargetPlan
from foldcli.pipeline.target_run import TargetRun, measured_stage
from foldcli.progress import Progress, progress_bar
from msa.io.fasta import FastaRecord
from msa.search.engine import ProfileCallback
from msa.search.hits import Hits
from msa.search.search import check_query
from msa.search.settings import SearchSettings

# largest number of queries searched together; the first batch is small, so that the network can begin early
SEARCH_BATCH = 64


class Searcher(Protocol):
    """A database that can be searched, in this process or in a server."""

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts, which identify its content."""
        ...

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits as they are found, in order; see `msa.search.search`."""
        ...


@dataclass(frozen=True)
class SearchResult:
    """The outcome of the search of one query.

    Args:
        name: file-safe name of the query.
        query: the query, or the complex whose chains were searched.
        error: the error if the search or storing the alignment failed.
    """

    name: str
    query: FastaRecord | Complex
    error: Exception | None = None

    def raise_error(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class SearchStage:
    """Searches of one database with the same settings.

    Args:
        searcher: the database.
        settings: settings of the searches and alignments.
        log_level: level of the log line with each query's number of hits.
        show_progress: draw a progress bar.
    """

    searcher: Searcher
    settings: AlignmentSettings
    log_level: int = logging.DEBUG
    show_progress: bool = True

    @property
    def request(self) -> AlignmentRequest:
        """The request that the alignments of this stage answer."""
        return AlignmentRequest(self.searcher.checksums, self.settings)

    def search(
        self,
        queries: Sequence[tuple[str, FastaRecord]],
        on_profile: ProfileCallback | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[str, FastaRecord, Hits]]:
        """Yield the name, query and hits of each query, in order, as they are found.

        Args:
            queries: names and queries.
            on_profile: called with a query and its last profile, before its hits are yielded.
            progress: see `msa.search.search`; None draws a bar, if the stage shows one.
        """
        if progress is None and self.show_progress:
            with progress_bar("search", "targets") as bar:
                yield from self._search(queries, on_profile, bar)
        else:
            yield from self._search(queries, on_profile, progress)

    def _search(
        self,
        queries: Sequence[tuple[str, FastaRecord]],
        on_profile: ProfileCallback | None,
        progress: Progress | None,
    ) -> Iterator[tuple[str, FastaRecord, Hits]]:
        records = [query for _, query in queries]
        results = self.searcher.search_many(records, self.settings.search, progress, on_profile)
        for (name, _), (query, hits) in zip(queries, results, strict=True):
            logger.log(self.log_level, "%s: %d hits", name, len(hits))
            yield name, query, hits

    def run(
        self,
        queries: Sequence[tuple[str, FastaRecord]],
        store: AlignmentStore,
        on_profile: ProfileCallback | None = None,
        progress: Progress | None = None,
    ) -> Iterator[SearchResult]:
        """Search all queries and store their alignments; one failure does not stop the others.

        Args:
            queries: names and queries.
            store: stores the alignments.
            on_profile: see `search`.
            progress: see `search`.

        Yields:
            The outcome of each query, in order.

        Raises:
            ServerLost: the connection to the server is lost, so no other query can be searched.
        """
        while queries:
            searched = 0
            try:
                for name, query, hits in self.search(queries, on_profile, progress):
                    searched += 1
                    yield _store_alignment(store, name, query, hits)
            except ServerLost:
                raise
            except Exception as error:
                name, query = queries[searched]
                searched += 1
                yield SearchResult(name, query, error)
            # after an error the search continues with the next query
            queries = queries[searched:]


def _store_alignment(store: AlignmentStore, name: str, query: FastaRecord, hits: Hits) -> SearchResult:
    try:
        store.write(name, query, hits)
    except Exception as error:
        return SearchResult(name, query, error)
    return SearchResult(name, query)


def search_ahead(
    targets: Iterable[TargetRun],
    stage: SearchStage,
    store: TargetStore,
    locks: TargetLocks,
    begin_target: Callable[[TargetRun], TargetPlan | None],
    fail_target: Callable[[TargetRun, BaseException], None],
    show_status: Callable[[str], None],
) -> Iterator[TargetRun]:
    """Yield targets once their alignments exist; those without alignments are searched in batches.

    Targets that another run has locked come last, when that run has released them.

    Args:
        targets: all targets of the run; only sequences are searched, others are passed on.
        stage: the searches.
        store: stores the alignments.
        locks: a target is locked while it is searched.
        begin_target: called with each target after it was locked; returns None if it is already finished.
        fail_target: called with each target that fails, and the error; must release the lock.
        show_status: called with descriptions of the progress.
    """
    locked_elsewhere: list[TargetRun] = []
    batch: list[TargetRun] = []
    # each batch is twice as large as the one before
    size = FIRST_BATCH

    def needs_search(target: TargetRun) -> bool:
        """Return True if a locked target must be searched; otherwise release its lock."""
        assert isinstance(target.input, FastaRecord)
        try:
            check_query(target.input)
            if begin_target(target) is not None and not store.is_finished(target.name, target.input):
                return True
        except Exception as error:
            fail_target(target, error)
            return False
        locks.release(target.files.lock_path)
        return False

    def search_batch() -> Iterator[TargetRun]:
        queries = [(target.name, target.input) for target in batch if isinstance(target.input, FastaRecord)]
        text = f"searching with {len(queries)} sequence{'s' if len(queries) > 1 else ''}"
        logger.debug("%s", text)
        show_status(text)

        def progress(done: int, total: int | None) -> None:
            show_status(f"{text}, {100 * done // total} %" if total else text)

        with measured_stage("search") as costs:
            results = list(stage.run(queries, store, progress=progress))
        log_time_since_start(f"{len(queries)} sequences were searched")
        cost = replace(costs[0], seconds=costs[0].seconds / len(batch))
        for target, result in zip(batch, results, strict=True):
            if result.error is not None:
                fail_target(target, result.error)
                continue
            target.add_cost(cost)
            locks.release(target.files.lock_path)
            yield target
        batch.clear()

    for target in targets:
        if not isinstance(target.input, FastaRecord):
            yield target
        elif not locks.try_acquire(target.files.lock_path):
            locked_elsewhere.append(target)
        elif needs_search(target):
            batch.append(target)
            if len(batch) == size:
                size = min(2 * size, SEARCH_BATCH)
                yield from search_batch()
        elif not target.failed:
            yield target
    if batch:
        yield from search_batch()
    for target in locked_elsewhere:
        if not locks.acquire(target.files.lock_path, target.name):
            return
        if needs_search(target):
            batch.append(target)
            yield from search_batch()
        elif not target.failed:
            yield target
