"""The search stage: search queries and store the alignments of their hits."""

import gzip
import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

from foldcli.errors import ServerLost
from foldcli.logs import logger
from foldcli.outputs import colabfold_layout
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import FileKind, TargetFiles
from foldcli.outputs.model_files import link_file
from foldcli.pipeline.identity import AlignmentRequest, file_sha256
from foldcli.pipeline.locks import TargetLocks
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.pipeline.target_run import TargetRun, measured_stage
from foldcli.progress import Progress, progress_bar
from msa.io.a3m import write_a3m
from msa.io.atomic import atomic_write
from msa.io.fasta import FastaRecord
from msa.io.m8 import DEFAULT_COLUMNS, write_m8
from msa.io.stockholm import write_stockholm
from msa.search.alignment_filter import alignment_hits
from msa.search.engine import ProfileCallback
from msa.search.hits import Hit, Hits
from msa.search.search import check_query
from msa.search.settings import SearchSettings

# the record of a finished search in a target's work folder
SEARCH_RECORD = "search.json"
# queries that are searched together, before the network begins with the first of them
SEARCH_BATCH = 64
_SEARCH_FILES: tuple[FileKind, ...] = ("alignment", "hits")
_WRITERS = {"a3m": write_a3m, "sto": write_stockholm}


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


class AlignmentStore(Protocol):
    """A location for the alignments of searched queries."""

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return whether an earlier run stored this alignment."""
        ...

    def write(self, name: str, query: FastaRecord, hits: Sequence[Hit]) -> None:
        """Store the alignment of a query's hits."""
        ...


@dataclass(frozen=True)
class SearchResult:
    """The outcome of one query.

    Args:
        name: file-safe name of the query.
        query: the query.
        error: the error if the search or storing the alignment failed.
    """

    name: str
    query: FastaRecord
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
        found = self.searcher.search_many(records, self.settings.search, progress, on_profile)
        for (name, _), (query, hits) in zip(queries, found, strict=True):
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
            store: location of the alignments.
            on_profile: see `search`.
            progress: see `search`.

        Yields:
            The outcome of each query, in order.

        Raises:
            ServerLost: the server is gone, so no other query can be searched.
        """
        while queries:
            searched = 0
            try:
                for name, query, hits in self.search(queries, on_profile, progress):
                    searched += 1
                    yield _store(store, name, query, hits)
            except ServerLost:
                raise
            except Exception as error:
                name, query = queries[searched]
                searched += 1
                yield SearchResult(name, query, error)
            # after an error the search continues with the next query
            queries = queries[searched:]


def _store(store: AlignmentStore, name: str, query: FastaRecord, hits: Sequence[Hit]) -> SearchResult:
    try:
        store.write(name, query, hits)
    except Exception as error:
        return SearchResult(name, query, error)
    return SearchResult(name, query)


def write_alignment(
    stream: IO[str], query: FastaRecord, hits: Sequence[Hit], settings: AlignmentSettings, kind: str = "a3m"
) -> int:
    """Write the alignment of a query's hits.

    Args:
        stream: text stream.
        query: the first row.
        hits: best first.
        settings: its filter selects the rows.
        kind: "a3m", or "sto" for Stockholm.

    Returns:
        The number of rows after the query.
    """
    rows = alignment_hits(query, hits, settings.row_filter, settings.search.threads)
    _WRITERS[kind](stream, query, rows)
    return len(rows)


@dataclass(frozen=True)
class CacheStore:
    """Alignments in the feature cache: CACHE/alignments/ab/abcdef…/NAME.a3m.gz, by fingerprint.

    Args:
        cache: folder of the feature cache.
        request: the database and settings that the alignments depend on.
        overwrite: search again even if the alignment exists.
    """

    cache: Path
    request: AlignmentRequest
    overwrite: bool = False

    def path(self, name: str, query: FastaRecord) -> Path:
        """Return the path of a query's alignment."""
        key = self.request.key(query)
        return self.cache / "alignments" / key[:2] / key / f"{name}.a3m.gz"

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return whether an earlier run stored this alignment."""
        return not self.overwrite and self.path(name, query).is_file()

    def write(self, name: str, query: FastaRecord, hits: Sequence[Hit]) -> None:
        """Write the alignment of a query's hits.

        Raises:
            OSError: the cache cannot be written.
        """
        text = io.StringIO()
        write_alignment(text, query, hits, self.request.settings)
        with atomic_write(self.path(name, query), "wb") as stream:
            # without a time stamp, so that the same search writes the same bytes
            stream.write(gzip.compress(text.getvalue().encode(), mtime=0))


@dataclass(frozen=True)
class TargetStore:
    """The alignments and hits of a run's targets, staged in work folders until the targets are finished.

    Args:
        targets: the run's targets, by name.
        request: the database and settings that the alignments depend on.
        overwrite: ignore the searches of finished targets.
    """

    targets: Mapping[str, TargetRun]
    request: AlignmentRequest
    overwrite: bool = False

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return whether an earlier run searched this query; its files are then staged and recorded."""
        target = self.targets[name]
        files = target.files
        record = self._staged_record(files, query)
        if record is None:
            shutil.rmtree(files.search_folder, ignore_errors=True)
            if self.overwrite or (record := self._published_record(files, query)) is None:
                return False
            for kind in _SEARCH_FILES:
                link_file(files.path(kind), files.staged(kind))
            _write_record(files, record)
        _add_facts(target, record)
        return True

    def write(self, name: str, query: FastaRecord, hits: Sequence[Hit]) -> None:
        """Write the hits, their alignment, and the record of the search.

        Raises:
            OSError: a file cannot be written.
        """
        target = self.targets[name]
        files = target.files
        with atomic_write(files.staged("hits")) as stream:
            write_m8(stream, query, hits, DEFAULT_COLUMNS)
        with atomic_write(files.staged("alignment")) as stream:
            if files.layout == "colabfold":
                stream.write(colabfold_layout.first_line(len(query.sequence)))
            write_alignment(stream, query, hits, self.request.settings)
        record = {
            "fingerprint": self.request.key(query),
            "hits": len(hits),
            "capped": self.request.settings.search.max_seqs
            if isinstance(hits, Hits) and hits.capped
            else None,
            "sha256": {kind: file_sha256(files.staged(kind)) for kind in _SEARCH_FILES},
        }
        _write_record(files, record)
        _add_facts(target, record)

    def _staged_record(self, files: TargetFiles, query: FastaRecord) -> dict[str, Any] | None:
        """Return the record of a staged search if it is of this query, and its files are as it says."""
        path = files.search_folder / SEARCH_RECORD
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s: damaged, so %s is searched again (%s)", path, files.name, error)
            return None
        return self._checked(record, query, {kind: files.staged(kind) for kind in _SEARCH_FILES})

    def _published_record(self, files: TargetFiles, query: FastaRecord) -> dict[str, Any] | None:
        """Return the record of a finished target's search, under the same conditions."""
        try:
            finished = FinishedTarget.read(files.path("done"))
        except (OSError, ValueError):
            return None
        if finished is None:
            return None
        paths = {kind: files.path(kind) for kind in _SEARCH_FILES}
        return self._checked(finished.facts.get("search"), query, paths)

    def _checked(self, record: Any, query: FastaRecord, paths: dict[FileKind, Path]) -> dict[str, Any] | None:
        if not isinstance(record, dict) or record.get("fingerprint") != self.request.key(query):
            return None
        expected = record.get("sha256")
        if not isinstance(expected, dict) or not isinstance(record.get("hits"), int):
            return None
        for kind, path in paths.items():
            try:
                if file_sha256(path) != expected.get(kind):
                    logger.warning("%s: changed since its search, so the search runs again", path)
                    return None
            except OSError:
                return None
        return record


def _add_facts(target: TargetRun, record: dict[str, Any]) -> None:
    target.facts["search"] = record
    if record.get("capped"):
        warning = f"the search reached --max-seqs {record['capped']}; further sequences were left out"
        target.warnings.append(warning)
        logger.warning("%s: %s", target.name, warning)


def _write_record(files: TargetFiles, record: dict[str, Any]) -> None:
    with atomic_write(files.search_folder / SEARCH_RECORD) as stream:
        json.dump(record, stream)


def search_ahead(
    targets: Sequence[TargetRun],
    stage: SearchStage,
    store: TargetStore,
    locks: TargetLocks,
    begin: Callable[[TargetRun], bool],
    fail: Callable[[TargetRun, BaseException], None],
    show: Callable[[str], None],
) -> Iterator[TargetRun]:
    """Yield targets whose alignments exist, searching for the others in batches.

    Targets that another run is working on come last, after waiting for that run.

    Args:
        targets: all targets of the run; those that are no queries need no search.
        stage: the searches.
        store: location of the alignments.
        locks: a target is locked while it is searched.
        begin: called with a target that was just locked; returns False if it needs no work.
        fail: called with a target that failed, and the error; releases its lock.
        show: called with a text about the progress.
    """
    locked_elsewhere: list[TargetRun] = []
    batch: list[TargetRun] = []

    def needs_search(target: TargetRun) -> bool:
        """Return True if a locked target must be searched; otherwise its lock is released."""
        assert isinstance(target.input, FastaRecord)
        try:
            check_query(target.input)
            if begin(target) and not store.is_finished(target.name, target.input):
                return True
        except Exception as error:
            fail(target, error)
            return False
        locks.release(target.files.lock)
        return False

    def search_batch() -> Iterator[TargetRun]:
        queries = [(target.name, target.input) for target in batch if isinstance(target.input, FastaRecord)]
        text = f"searching with {len(queries)} sequence{'s' if len(queries) > 1 else ''}"
        logger.debug("%s", text)
        show(text)

        def progress(done: int, total: int | None) -> None:
            show(f"{text}, {100 * done // total} %" if total else text)

        with measured_stage("search") as costs:
            results = list(stage.run(queries, store, progress=progress))
        cost = replace(costs[0], seconds=costs[0].seconds / len(batch))
        for target, result in zip(batch, results, strict=True):
            if result.error is not None:
                fail(target, result.error)
                continue
            target.add_cost(cost)
            locks.release(target.files.lock)
            yield target
        batch.clear()

    for target in targets:
        if not isinstance(target.input, FastaRecord):
            yield target
        elif not locks.try_acquire(target.files.lock):
            locked_elsewhere.append(target)
        elif needs_search(target):
            batch.append(target)
            if len(batch) == SEARCH_BATCH:
                yield from search_batch()
        elif not target.failed:
            yield target
    if batch:
        yield from search_batch()
    for target in locked_elsewhere:
        if not locks.acquire(target.files.lock, target.name):
            return
        if needs_search(target):
            batch.append(target)
            yield from search_batch()
        elif not target.failed:
            yield target
