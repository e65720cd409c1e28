"""The searches of a run as its command line requests them."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.protocols import Searcher
from foldcli.pipeline.search.search_process import SearchProcess, needs_process
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.defaults import library_database
from msa.database.database import TargetDatabase

# largest share of a GPU's memory that searches use; the network needs the rest
_GPU_SHARE = 0.5


@dataclass(frozen=True)
class SearchOptions:
    """The database and the settings of a run's searches.

    Args:
        database: value of `--db`; None is the package's library.
    """

    database: str | None
    alignment: AlignmentSettings
    others: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "SearchOptions":
        """Create the options from the values of the search options of `fold`, which include `databases`."""
        first, *others = options["databases"] or (None,)
        return cls(first, AlignmentSettings.from_options(options, options["threads"]), tuple(others))

    def with_database(self) -> "SearchOptions":
        """Return options with a database: the given one, or with a warning the package's library."""
        return replace(self, database=str(library_database())) if self.database is None else self

    def open_existing(self, device: str) -> TargetDatabase | None:
        """Open the database for `--dry-run`; return None if it would first have to be converted."""
        return self._source(device).open_existing()

    def start_process(self, device: str, predicts_here: bool) -> SearchProcess | None:
        """Start a process for the searches if they would delay the predictions of this process.

        Args:
            device: value of `--device`.
            predicts_here: whether a network runs in this process.
        """
        database = str(self.database)
        if needs_process(device, predicts_here, database, *self.others):
            return SearchProcess(database, device, _GPU_SHARE, self.others)
        return None

    def open(self, device: str, process: SearchProcess | None) -> tuple[SearchStage, str]:
        """Open the database for searches; return the search stage and a description of the database.

        Args:
            device: value of `--device`.
            process: a process for the searches; None to search in this process.
        """
        source = self._source(device)
        database = source.open()
        open_here = partial(open_searcher, source, database, _GPU_SHARE)
        searcher: Searcher = open_here() if process is None else process.open(database, open_here)
        names = ", ".join((source.db, *source.others))
        count = sum(each.manifest.sequences for each in (database, *database.companions))
        description = f"{names} of {count:,} sequences"
        return SearchStage(searcher, self.alignment, show_progress=False), description

    def _source(self, device: str) -> DatabaseSource:
        assert self.database is not None
        return DatabaseSource(self.database, device, self.others)
