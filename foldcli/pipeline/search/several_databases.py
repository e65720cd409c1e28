"""A search in several databases, whose hits follow one another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foldcli.pipeline.search.searcher import DatabaseSource, LocalSearcher, open_search_engine
from foldcli.pipeline.search.stage import HitSearcher
from foldcli.progress import Progress
from msa.database.database import TargetDatabase
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, QueryProfile
from msa.search.split.merge import concatenate_hits

# queries whose hits in the first database are kept until the others have been searched
_JOINED_QUERIES = 256


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


def open_joined(source: DatabaseSource) -> LocalSearcher | JoinedSearcher:
    """Open all databases and their search engines; see `DatabaseSource.open_searcher`."""
    return make_joined(source, source.open()) if source.others else source.open_searcher()


def make_joined(
    source: DatabaseSource, database: TargetDatabase, gpu_share: float = 0.9
) -> LocalSearcher | JoinedSearcher:
    """Open search engines for an opened database and its companions.

    Raises:
        GpuUnavailable: the requested GPU cannot be used.
    """
    if not database.companions:
        return LocalSearcher(database, open_search_engine(source.device, gpu_share, source.started))
    databases = (replace(database, companions=()), *database.companions)
    share = gpu_share / len(databases)
    return JoinedSearcher(
        [
            LocalSearcher(
                each.with_companions([other for other in databases if other is not each]),
                open_search_engine(source.device, share),
            )
            for each in databases
        ]
    )
