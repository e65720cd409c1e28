"""The search stage: search with queries, and store the alignments of their hits."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from foldcli.errors import ExitCode, ServerLost, exit_code_of
from foldcli.inputs.complexes import Complex
from foldcli.logs import logger
from foldcli.pipeline.processes.background import map_in_threads
from foldcli.pipeline.search.hit_texts import HitTexts, TextMaker
from foldcli.pipeline.search.protocols import AlignmentStore, Searcher
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.progress import Progress, progress_bar
from msa.base.errors import DamagedDatabase
from msa.engines.engine import ProfileCallback
from msa.gpu.device.devices import AlignmentTooLarge
from msa.io.fasta import FastaRecord


@dataclass(frozen=True)
class SearchResult:
    """The outcome of the search of one query."""

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
        log_level: level of the log line with each query's number of hits.
        progress: called instead of drawing a bar.
        write_threads: threads that store alignments; 0 for the thread that searches, which alone leaves no
            unfinished file when it is interrupted.
    """

    searcher: Searcher
    settings: AlignmentSettings
    log_level: int = logging.DEBUG
    show_progress: bool = True
    progress: Progress | None = None
    write_threads: int = 0

    @property
    def request(self) -> AlignmentRequest:
        """The request that the alignments of this stage answer."""
        return AlignmentRequest(self.searcher.checksums, self.settings)

    def close(self) -> None:
        """Release the GPU memory of a process that searches; no search may follow."""
        self.searcher.close()

    def search(
        self,
        queries: Sequence[tuple[str, FastaRecord]],
        make: TextMaker,
        on_profile: ProfileCallback | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[str, FastaRecord, HitTexts]]:
        """Yield the name, query and hits of each query, in order, as they are found; see `Searcher`.

        Args:
            queries: names and queries.
            make: makes the texts of hits.
            on_profile: called with a query and its last profile, before its hits are yielded.
            progress: see `msa.search.database_search`; None draws a bar, if the stage shows one.
        """
        progress = progress or self.progress
        if progress is None and self.show_progress:
            with progress_bar("search", "targets") as bar:
                yield from self.search(queries, make, on_profile, bar)
            return
        records = [query for _, query in queries]
        results = self.searcher.map_hits(records, self.settings.search, make, progress, on_profile)
        for (name, _), (query, texts) in zip(queries, results, strict=True):
            logger.log(self.log_level, "%s: %d hits", name, texts.count)
            yield name, query, texts

    def run(
        self,
        queries: Sequence[tuple[str, FastaRecord]],
        store: AlignmentStore,
        on_profile: ProfileCallback | None = None,
        progress: Progress | None = None,
        make: TextMaker | None = None,
    ) -> Iterator[SearchResult]:
        """Search all queries and store their alignments; one failure does not stop the others.

        After an error of several queries, each half of them is searched again, down to single queries. An
        error of the database, the engine or a disk is that of all further queries.

        Arguments are those of `search`. By default, `make` makes a table and A3M for the store.

        Yields:
            The outcome of each query, in order.

        Raises:
            ServerLost: the connection to the server is lost, so no other query can be searched.
        """

        def write(found: tuple[str, FastaRecord, HitTexts]) -> SearchResult:
            name, query, texts = found
            try:
                store.write(name, query, texts)
            except Exception as error:
                return SearchResult(name, query, error)
            return SearchResult(name, query)

        make = make or TextMaker(self.settings)
        # parts of the queries, the next one last
        waiting = [queries]
        while waiting:
            part, searched = waiting.pop(), 0
            try:
                found = self.search(part, make, on_profile, progress)
                for result in map_in_threads(write, found, self.write_threads):
                    searched += 1
                    yield result
            except ServerLost:
                raise
            except Exception as error:
                rest = part[searched:]
                if not rest:
                    raise
                if len(rest) > 1 and _may_be_of_one_query(error):
                    # a search of several queries may fail before it yields those without an error
                    half = (len(rest) + 1) // 2
                    waiting += [rest[half:], rest[:half]]
                    continue
                if not _may_be_of_one_query(error):
                    rest, waiting = [*rest, *chain(*reversed(waiting))], []
                for name, query in rest:
                    yield SearchResult(name, query, error)


def _may_be_of_one_query(error: Exception) -> bool:
    """Return False for an error that other queries would have too: of the database, the engine or a disk."""
    if isinstance(error, DamagedDatabase | ChildProcessError):
        return False
    return isinstance(error, AlignmentTooLarge) or exit_code_of(error) is not ExitCode.MISSING
