"""Protocols of what a `SearchStage` uses: searchers of databases, and stores of alignments.

    Searcher
    ├── HitSearcher             returns hits to this process
    │   ├── LocalSearcher       a database and an engine in this process          `searcher`
    │   ├── JoinedSearcher      several of them                                   `searcher`
    │   ├── ExactSearcher       exact occurrences                                 `searcher`
    │   ├── RemoteSearcher      the database of a server                          `foldcli.server.client`
    │   └── MergedSearcher      results for the parts of a split database         `foldcli.search_runs.split`
    └── ProcessSearcher         databases that another process searches           `search_process`

`LocalSearcher`, `JoinedSearcher` and `ProcessSearcher` are also a `DatabaseSearcher`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from foldcli.inputs.complexes import Complex
from foldcli.pipeline.search.hit_texts import HitTexts, map_hits
from foldcli.progress import Progress
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

R = TypeVar("R")


class Searcher(Protocol):
    """A database that can be searched, in this process, in another one or in a server."""

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts, which identify its content."""

    def map_hits(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        make: Callable[[FastaRecord, Hits], R],
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, R]]:
        """Yield each query with what `make` returns for its hits, as they are found, in order.

        Args:
            queries: the queries.
            settings: settings of the search.
            make: called by any thread or process; picklable.
            progress: see `msa.search.database_search`.
            on_profile: called with a query and its last profile, before its hits are yielded; not by
                searchers in other processes.
        """

    def close(self) -> None:
        """Release the GPU memory of a process that searches; no search may follow."""


class HitSearcher(Searcher, Protocol):
    """A searcher that returns hits to this process; a base class."""

    @abstractmethod
    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits as they are found, in order; see `msa.search.database_search`."""

    def map_hits(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        make: Callable[[FastaRecord, Hits], R],
        progress: Progress | None = None,
        on_profile: ProfileCallback | None = None,
    ) -> Iterator[tuple[FastaRecord, R]]:
        """Yield each query with what `make` returns for its hits; see `Searcher`."""
        found = self.search_many(queries, settings, progress, on_profile)
        if (processes := self.processes) is not None:
            return map_hits(make, found, settings, processes)
        # the search uses all cores, and its next query may take long
        return ((query, make(query, hits)) for query, hits in found)

    @property
    def processes(self) -> DatabaseProcesses | None:
        """The processes of an engine that drives GPUs; None without one."""
        return None

    @property
    def drives_gpus(self) -> bool:
        """True if GPUs search."""
        return self.processes is not None

    def close(self) -> None:
        """Do nothing: this process keeps the database open."""
        return None


class DatabaseSearcher(Searcher, Protocol):
    """A searcher of databases of this machine."""

    @property
    def drives_gpus(self) -> bool:
        """True if GPUs search."""

    def alone(self) -> "DatabaseSearcher":
        """Return a searcher of the first database as if there were no others."""


class AlignmentStore(Protocol):
    """A store of the alignments of searched queries."""

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return True if an earlier run stored this alignment."""

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Store the alignment of a query's hits."""


class ComplexStore(Protocol):
    """A store of the alignments of complexes."""

    def write_complex(self, name: str, target: Complex, chain_alignments: Sequence[bytes]) -> None:
        """Store the alignment of a complex, given the A3M files of its chains."""
