"""What one run of `foldcli search` searches, and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from foldcli.inputs.shard import Shard

if TYPE_CHECKING:
    from foldcli.inputs.queries import QuerySources
    from foldcli.pipeline.searcher import Searcher
    from msa.io.fasta import FastaRecord
    from msa.search.alignment_filter import AlignmentFilter
    from msa.search.engine import ProfileCallback
    from msa.search.hits import Hit
    from msa.search.search import SearchSettings


@dataclass(frozen=True)
class Search:
    """A run of the command.

    Args:
        inputs: files and folders of queries.
        profiles: files of saved profiles, which are queries too.
        where: database, or a server's socket.
        settings: see SearchSettings.
        rows: which hits make an alignment's rows.
        device: value of `--device`.
        shard: the run's part of the queries.
        save_profile: file or folder for what the last iteration searched with, if it is asked for.
    """

    inputs: list[str]
    profiles: Sequence[str]
    where: str | Path
    settings: "SearchSettings"
    rows: "AlignmentFilter"
    device: str
    shard: Shard
    save_profile: str | None

    @property
    def sources(self) -> "QuerySources":
        """Where the queries come from."""
        from foldcli.inputs.queries import QuerySources

        settings = self.settings
        return QuerySources(self.inputs, settings.comp_bias_corr, settings.matrix, self.profiles)

    def queries(self) -> "list[FastaRecord]":
        """The shard's queries in the order of the input.

        Raises:
            InputError: a file cannot be read, or a query cannot be searched with; the first such.
        """
        from foldcli.inputs.queries import log_profile_queries
        from msa.search.search import check_query

        records = [record for _, read in self.sources.readers() for record in read()]
        for record in records:
            check_query(record)
        kept = self.shard.select((record.id, place) for place, record in enumerate(records))
        chosen = [records[place] for place in sorted(place for _, place in kept)]
        log_profile_queries(chosen)
        return chosen

    def open(self) -> "Searcher":
        """The database with its engine, or the connection to the server that has both.

        Raises:
            MissingError: a GPU was asked for and cannot be used, or no server is there.
            InputError: there is no such database.
        """
        if isinstance(self.where, Path):
            from foldcli.server.client import RemoteSearcher

            return RemoteSearcher(self.where)
        from foldcli.pipeline.searcher import open_here

        return open_here(self.where, self.device)

    def found(
        self,
        searcher: "Searcher",
        queries: "Sequence[tuple[str, FastaRecord]]",
        on_profile: "ProfileCallback | None" = None,
    ) -> "Iterator[tuple[FastaRecord, list[Hit]]]":
        """Each query, given with its name, with its hits, in order, as they are found.

        Args:
            searcher: what searches.
            queries: with their names.
            on_profile: called with the profile of the last iteration, before the query's hits are returned.
        """
        from foldcli.logs import logger
        from foldcli.progress import progress_bar

        what = f"{queries[0][0]}: search" if len(queries) == 1 else "search"
        with progress_bar(what, "targets") as progress:
            found = searcher.search_many([query for _, query in queries], self.settings, progress, on_profile)
            for (name, _), (query, hits) in zip(queries, found, strict=True):
                logger.info("%s: %d hits", name, len(hits))
                yield query, hits

    def write_alignment(self, stream: IO[str], kind: str, query: "FastaRecord", hits: "Sequence[Hit]") -> int:
        """Write A3M or Stockholm; how many rows there are, the query's own apart."""
        from msa.io.a3m import write_a3m
        from msa.io.stockholm import write_stockholm
        from msa.search.alignment_filter import alignment_hits

        rows = alignment_hits(query, hits, self.rows, self.settings.threads)
        {"a3m": write_a3m, "sto": write_stockholm}[kind](stream, query, rows)
        return len(rows)
