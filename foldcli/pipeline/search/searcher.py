"""Searchers of databases in this process: of one, of several, and for exact occurrences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from foldcli.logs import logger
from foldcli.pipeline.search.protocols import HitSearcher
from foldcli.progress import Progress
from msa.database.database import TargetDatabase
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import Engine, ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import lasting_failure
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.search.database_search import search_many
from msa.search.exact import exact_search
from msa.search.split.merge import PartHits, concatenate_hits
from msa.search.split.part_search import ReadParts, search_part

T = TypeVar("T")

# queries whose hits in the first database are kept until the others have been searched
_JOINED_QUERIES = 256


@dataclass(frozen=True)
class LocalSearcher(HitSearcher):
    """A database and a search engine in this process.

    Args:
        engine: the search engine; hits do not depend on it.
    """

    database: TargetDatabase
    engine: Engine

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts."""
        return self.database.checksums

    @property
    def processes(self) -> DatabaseProcesses | None:
        """The processes of an engine that drives GPUs; None without one."""
        return self.engine.processes

    def alone(self) -> "LocalSearcher":
        """Return a searcher of the database as if it had no companions."""
        return replace(self, database=self.database.with_companions(()))

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits as they are found, in order; see `msa.search.database_search`.

        Raises:
            InputError: a query is too short, or a file of the database has changed since it was opened.
            GpuUnavailable: the GPU has failed, and cannot be used by its process any more.
        """
        results = search_many(
            queries, self.database, settings, engine=self.engine, progress=progress, on_profile=on_profile
        )
        yield from self._check_database(results)

    def search_part(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        earlier: Sequence[ReadParts] = (),
        progress: Progress | None = None,
    ) -> Iterator[tuple[FastaRecord, PartHits | None]]:
        """Yield each query with its hits in one iteration; see `msa.search.split.part_search.search_part`."""
        yield from self._check_database(
            search_part(queries, self.database, settings, self.engine, earlier, progress)
        )

    def _check_database(self, results: Iterator[T]) -> Iterator[T]:
        """Yield the results of a search, checking before each one that the database has not changed."""
        try:
            for result in results:
                self.database.check_sizes()
                yield result
        except Exception as error:
            # bytes behind the end of a truncated file read as zeros, on which a search may fail
            self.database.check_sizes()
            if (failure := lasting_failure(error)) is not None:
                raise failure from error
            raise
        if stages := self.engine.seconds:
            text = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in stages.items())
            logger.debug("GPU stages so far: %s", text, extra={"fields": {"stages": stages}})


@dataclass(frozen=True)
class JoinedSearcher(HitSearcher):
    """Several databases.

    The iterations of a search use the first database. The profile of the last one then searches the others
    once, and their hits follow those of the first database. E-values refer to the sequences of all.
    """

    searchers: Sequence[LocalSearcher]

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the parts of all databases."""
        return self.searchers[0].checksums

    @property
    def processes(self) -> DatabaseProcesses | None:
        """The processes of an engine that drives GPUs; None without one."""
        return self.searchers[0].processes

    def alone(self) -> LocalSearcher:
        """Return a searcher of the first database as if there were no others."""
        return self.searchers[0].alone()

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits in all databases, in order; see `msa.search.database_search`.

        Raises:
            InputError: a query is too short, or a file of a database has changed since it was opened.
        """
        sizes = [len(searcher.database) for searcher in self.searchers]
        sizes[0] *= settings.num_iterations
        total, before = sum(sizes) * len(queries), 0

        def report(done: int, _: int | None) -> None:
            if progress is not None:
                progress(before + done, total)

        for start in range(0, len(queries), _JOINED_QUERIES):
            block = queries[start : start + _JOINED_QUERIES]
            further: list[FastaRecord] = []

            def keep(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
                further.append(_further_query(query, profile, of_family, settings))  # noqa: B023
                if on_profile is not None:
                    on_profile(query, profile, of_family)

            found = [[hits] for _, hits in self.searchers[0].search_many(block, settings, report, keep)]
            before += sizes[0] * len(block)
            once = replace(settings, num_iterations=1)
            for searcher, size in zip(self.searchers[1:], sizes[1:], strict=True):
                results = searcher.search_many(further, once, report)
                for hits, (_, more) in zip(found, results, strict=True):
                    hits.append(more)
                before += size * len(block)
            for query, parts in zip(block, found, strict=True):
                yield query, _join_hits(parts, [len(searcher.database) for searcher in self.searchers])


def _further_query(
    query: FastaRecord, profile: QueryProfile, of_family: bool, settings: SearchSettings
) -> FastaRecord:
    """Return what further databases are searched with: the last profile, or without iterations the query."""
    if settings.num_iterations == 1:
        return query
    return ProfileRecord(query.header, query.sequence, profile.profile, "iterations", of_family)


def _join_hits(parts: Sequence[Hits], sizes: Sequence[int]) -> Hits:
    """Return the hits of several databases, one after the other; targets count from the first database on."""
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    hits = [
        replace(part, targets=part.targets + start)
        for part, start in zip(parts, starts, strict=True)
        if len(part)
    ]
    joined = parts[0] if not hits else hits[0] if len(hits) == 1 else concatenate_hits(hits)
    return replace(joined, capped=any(part.capped for part in parts))


@dataclass(frozen=True)
class ExactSearcher(HitSearcher):
    """A database that is searched for exact occurrences."""

    database: TargetDatabase

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts, and the kind of search."""
        return self.database.manifest.checksums | {"search": "exact"}

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its occurrences; see `msa.search.exact.exact_search`.

        Raises:
            InputError: a query is too short or a profile, or a file of the database has changed.
        """
        for result in exact_search(queries, self.database, settings, progress):
            self.database.check_sizes()
            yield result
