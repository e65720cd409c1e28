"""The search stage: search queries and store the alignments of their hits."""

import gzip
import io
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from foldcli.errors import ServerLost
from foldcli.logs import logger
from foldcli.outputs import colabfold_layout
from foldcli.outputs.done import StageCost
from foldcli.pipeline.identity import AlignmentRequest
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.pipeline.target_run import TargetRun
from foldcli.progress import Progress, progress_bar
from msa.io.a3m import write_a3m
from msa.io.atomic import atomic_write
from msa.io.fasta import FastaRecord
from msa.io.m8 import DEFAULT_COLUMNS, write_m8
from msa.io.stockholm import write_stockholm
from msa.search.alignment_filter import alignment_hits
from msa.search.engine import ProfileCallback
from msa.search.hits import Hit, Hits
from msa.search.settings import SearchSettings

# the record of a finished search in a target's work folder
SEARCH_RECORD = "search.json"
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
        self, queries: Sequence[tuple[str, FastaRecord]], on_profile: ProfileCallback | None = None
    ) -> Iterator[tuple[str, FastaRecord, Hits]]:
        """Yield the name, query and hits of each query, in order, as they are found.

        Args:
            queries: names and queries.
            on_profile: called with a query and its last profile, before its hits are yielded.
        """
        if self.show_progress:
            with progress_bar(
                f"{queries[0][0]}: search" if len(queries) == 1 else "search", "targets"
            ) as progress:
                yield from self._search(queries, on_profile, progress)
        else:
            yield from self._search(queries, on_profile, None)

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
    ) -> Iterator[SearchResult]:
        """Search all queries and store their alignments; one failure does not stop the others.

        Args:
            queries: names and queries.
            store: location of the alignments.
            on_profile: see `search`.

        Yields:
            The outcome of each query, in order.

        Raises:
            ServerLost: the server is gone, so no other query can be searched.
        """
        while queries:
            searched = 0
            try:
                for name, query, hits in self.search(queries, on_profile):
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


@dataclass
class TargetStore:
    """The alignment and hits of one target of `fold`: NAME.a3m and NAME.m8, and the record of its search.

    The record is in the work folder until the target is finished, then in done.json.

    Args:
        target: the target.
        request: the database and settings that the alignment depends on.
    """

    target: TargetRun
    request: AlignmentRequest
    num_hits: int = 0

    @property
    def path(self) -> Path:
        """The path of the alignment."""
        return self.target.files.path("alignment")

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return whether an earlier run searched this query; the target then gets that run's record."""
        record = self._read_record()
        if record is None or record["fingerprint"] != self.request.key(query) or not self.path.is_file():
            return False
        self.target.costs.append(StageCost(**record["cost"]))
        self._write_record(record)
        return True

    def write(self, name: str, query: FastaRecord, hits: Sequence[Hit]) -> None:
        """Write the hits and their alignment."""
        files = self.target.files
        with atomic_write(files.path("hits")) as stream:
            write_m8(stream, query, hits, DEFAULT_COLUMNS)
        with atomic_write(self.path) as stream:
            if files.layout == "colabfold":
                stream.write(colabfold_layout.first_line(len(query.sequence)))
            write_alignment(stream, query, hits, self.request.settings)
        self.num_hits = len(hits)

    def finish(self, query: FastaRecord) -> None:
        """Record the finished search, whose cost is the target's last."""
        key, cost = self.request.key(query), asdict(self.target.costs[-1])
        self._write_record({"fingerprint": key, "hits": self.num_hits, "cost": cost})

    def _read_record(self) -> dict[str, Any] | None:
        if (unfinished := _read_json(self.target.files.work_folder / SEARCH_RECORD)) is not None:
            return unfinished
        done = _read_json(self.target.files.path("done"))
        return None if done is None else done["facts"].get("search")

    def _write_record(self, record: dict[str, Any]) -> None:
        self.target.facts["search"] = record
        with atomic_write(self.target.files.work_folder / SEARCH_RECORD) as stream:
            json.dump(record, stream)


def search_target(stage: SearchStage, target: TargetRun, query: FastaRecord) -> Path:
    """Write NAME.a3m and NAME.m8 of a target, unless an earlier run did, and return the path of the A3M.

    Raises:
        InputError: the query cannot be searched with.
        OSError: a file cannot be written.
    """
    store = TargetStore(target, stage.request)
    if not store.is_finished(target.name, query):
        with target.stage("search"):
            for result in stage.run([(target.name, query)], store):
                result.raise_error()
        store.finish(query)
    return store.path


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
