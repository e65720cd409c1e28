"""A run of `foldcli search`: its queries, settings and profiles; see `table` and `folder`."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foldcli.inputs.complexes import Complex
from foldcli.inputs.queries import Query, QueryReaders, name_queries
from foldcli.inputs.shard import Shard
from foldcli.pipeline.search.protocols import Searcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.base.atomic import atomic_write
from msa.base.progress import Progress
from msa.engines.engine import ProfileCallback
from msa.profile.profile_archive import ProfileWriter
from msa.search.database_search import check_query


@dataclass(frozen=True)
class SearchRun:
    """A run of `foldcli search`: its queries, database and settings.

    Args:
        save_profile: file or folder for the profiles of the last iteration, if requested.
        overwrite: replace existing results.
        cache: folder of the feature cache, which keeps the alignments of the chains of complexes; None if
            there are none.
    """

    sources: QueryReaders
    settings: AlignmentSettings
    open_searcher: Callable[[], Searcher]
    shard: Shard
    save_profile: str | None
    overwrite: bool
    cache: Path | None = None
    progress: Progress | None = None

    def stage(self) -> SearchStage:
        """Open the database, and return the stage that searches it."""
        searcher = self.open_searcher()
        return SearchStage(searcher, self.settings, log_level=logging.INFO, progress=self.progress)

    def queries(self) -> list[tuple[str, Query]]:
        """Return the ids and queries of this shard in input order.

        Raises:
            InputError: a file cannot be read, or a query cannot be searched with.
        """
        named_queries = name_queries(record for _, read in self.sources.readers() for record in read())
        queries = [query for _, query in named_queries]
        for query in queries:
            for chain_or_query in query.chains if isinstance(query, Complex) else (query,):
                check_query(chain_or_query)
        selected = self.shard.select((query.id, index) for index, query in enumerate(queries))
        return [(queries[index].id, queries[index]) for index in sorted(index for _, index in selected)]


@contextlib.contextmanager
def profile_file(path: str | Path | None, matrix: str) -> Iterator[ProfileCallback | None]:
    """Yield the function that adds a profile to a file, which appears only when it is complete."""
    if path is None:
        yield None
        return
    with atomic_write(path, "wb") as stream, ProfileWriter(stream, matrix) as writer:
        yield writer.add
