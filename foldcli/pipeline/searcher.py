"""What answers searches: a database with an engine in this process, or a server that holds both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from foldcli.progress import Progress, progress_bar

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.engine import Engine, ProfileCallback
    from msa.search.hits import Hit
    from msa.search.settings import SearchSettings


class Searcher(Protocol):
    """A database that can be searched."""

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts: what tells one database's content from another's."""
        ...

    def search_many(
        self,
        queries: "Sequence[FastaRecord]",
        settings: "SearchSettings",
        progress: Progress | None = None,
        on_profile: "ProfileCallback | None" = None,
    ) -> "Iterator[tuple[FastaRecord, list[Hit]]]":
        """Each query with its hits, in order, as they are found; see msa.search.search.search_many."""
        ...


@dataclass(frozen=True)
class LocalSearcher:
    """A database and what searches it, in this process.

    Args:
        targets: opened target database.
        engine: what searches; the hits do not depend on it.
    """

    targets: "TargetDatabase"
    engine: "Engine"

    @property
    def checksums(self) -> dict[str, str]:
        return self.targets.manifest.checksums

    def search_many(
        self,
        queries: "Sequence[FastaRecord]",
        settings: "SearchSettings",
        progress: Progress | None = None,
        on_profile: "ProfileCallback | None" = None,
    ) -> "Iterator[tuple[FastaRecord, list[Hit]]]":
        from foldcli.logs import logger
        from msa.search.search import search_many

        yield from search_many(queries, self.targets, settings, self.engine, progress, on_profile)
        if seconds := self.engine.seconds:
            told = ", ".join(f"{stage} {taken:.3f} s" for stage, taken in seconds.items())
            logger.debug("GPU stages so far: %s", told, extra={"fields": {"stages": seconds}})


def open_here(db: str, device: str) -> LocalSearcher:
    """The engine, then the database, which may take long to build.

    Args:
        db: see `open_database`.
        device: value of `--device`.

    Raises:
        GpuUnavailable: a GPU was asked for and cannot be used.
        InputError: see `open_database`.
    """
    from foldcli.pipeline.runtime import search_engine

    engine = search_engine(device)
    return LocalSearcher(open_database(db), engine)


def open_database(db: str) -> "TargetDatabase":
    """A target database, built first where it is a FASTA file or an MMseqs2 database.

    Raises:
        InputError: none of these, or a damaged one.
    """
    from foldcli.logs import logger
    from foldcli.paths import cache_dir
    from msa.database.build import open_or_build_database

    with progress_bar("building the database", "B") as progress:
        return open_or_build_database(Path(db), cache_dir(), progress, lambda line: logger.info("%s", line))


def find_database(db: str) -> "TargetDatabase | None":
    """Like `open_database`, but None where it would be built first.

    Raises:
        InputError: see `open_database`.
    """
    from foldcli.paths import cache_dir
    from msa.database.build import database_path
    from msa.database.database import TargetDatabase
    from msa.database.manifest import MANIFEST

    place = database_path(db, cache_dir())
    if place != Path(db) and not (place / MANIFEST).is_file():
        return None
    return TargetDatabase.open(place)
