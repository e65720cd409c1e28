"""Searches in this process: target databases and search engines named on the command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from foldcli.logs import logger
from foldcli.paths import cache_dir
from foldcli.pipeline.search.gpu_opening import max_gpu_bytes
from foldcli.pipeline.search.stage import HitSearcher
from foldcli.process_state import set_numba_cache_folder
from foldcli.progress import CompilationProgress, Progress, progress_bar
from msa.base.atomic import writing_cache
from msa.base.errors import InputError
from msa.database.database import BothStrands, TargetDatabase
from msa.database.manifest import MANIFEST
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import Engine, ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.io.molecules import PROTEIN, RNA
from msa.search.database_search import search_many
from msa.search.engine_selection import create_engine
from msa.search.exact import exact_search
from msa.search.split.merge import PartHits
from msa.search.split.part_search import ReadParts, search_part

T = TypeVar("T")


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
        except Exception:
            # bytes behind the end of a truncated file read as zeros, on which a search may fail
            self.database.check_sizes()
            raise
        if stages := self.engine.seconds:
            text = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in stages.items())
            logger.debug("GPU stages so far: %s", text, extra={"fields": {"stages": stages}})


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


@dataclass(frozen=True)
class DatabaseSource:
    """A target database as named on the command line, or several, and the device of its searches.

    Args:
        db: a database from `foldcli createdb`, or a FASTA file or an MMseqs2 database.
        others: further databases, which are searched with the profiles of the search of the first.
        molecule: kind of the sequences that are searched, PROTEIN or RNA.
        both_strands: search the reverse complements of RNA, too.
    """

    db: str
    device: str
    others: tuple[str, ...] = ()
    started: GpuProcess | None = None
    molecule: Literal["protein", "rna"] = PROTEIN
    both_strands: bool = False

    def open_searcher(self) -> LocalSearcher:
        """Open the only database and the search engine; first the engine if the database must be converted.

        `several_databases.open_joined` is for several databases.

        Raises:
            GpuUnavailable: the requested GPU cannot be used.
            InputError: see `open`.
        """
        assert not self.others
        database = self.open() if self._is_database else None
        engine = open_search_engine(self.device, started=self.started)
        # a conversion may take long
        return LocalSearcher(self.open() if database is None else database, engine)

    def open(self) -> TargetDatabase:
        """Open the database, first converting a FASTA file or an MMseqs2 database.

        Remarks of `createdb` about the file's content are logged even if an earlier run converted it.

        Raises:
            MissingError: there is no such path.
            InputError: `db` is not a database, is damaged, or has sequences of another kind.
        """
        database = TargetDatabase.open(Path(self.db)) if self._is_database else self._convert()
        self._check_molecule(database)
        if (whole := database.manifest.whole) is not None:
            logger.info(
                "%s: part %d of %d of a database of %s sequences, %s residues; E-values refer to all of them",
                self.db, whole.part, whole.parts, f"{whole.sequences:,}", f"{whole.residues:,}",
            )  # fmt: skip
        if database.path != Path(self.db):
            for remark in database.manifest.remarks():
                logger.warning("%s: %s", self.db, remark)
        database = BothStrands.of(database) if self.both_strands else database
        return database.with_companions([replace(self, db=db, others=()).open() for db in self.others])

    def _check_molecule(self, database: TargetDatabase) -> None:
        """Raise InputError if a database has sequences of another kind than those that are searched."""
        if (molecule := database.manifest.molecule) == self.molecule:
            return
        if molecule == RNA:
            raise InputError("a database of RNA, and this search is for proteins", self.db)
        raise InputError("a database of proteins; one of RNA: foldcli createdb --molecule rna", self.db)

    def open_existing(self) -> TargetDatabase | None:
        """Open the database, or return None if it would have to be converted first."""
        others = [replace(self, db=db, others=()).open_existing() for db in self.others]
        database = self._open_existing()
        if database is None or None in others:
            return None
        return database.with_companions([other for other in others if other is not None])

    def _open_existing(self) -> TargetDatabase | None:
        """Open the first database; see `open_existing`."""
        folder = Path(self.db)
        if not self._is_database:
            from msa.database.cached_databases import database_path  # numba, which databases do not need

            folder = database_path(self.db, cache_dir(), self.molecule)
            if folder != Path(self.db) and not (folder / MANIFEST).is_file():
                return None
        database = TargetDatabase.open(folder)
        self._check_molecule(database)
        return database

    @property
    def _is_database(self) -> bool:
        return (Path(self.db) / MANIFEST).is_file()

    def _convert(self) -> TargetDatabase:
        from msa.database.cached_databases import open_or_build_database  # numba; see above

        with writing_cache(cache_dir()), progress_bar("building the database", "B") as progress:
            return open_or_build_database(
                Path(self.db), cache_dir(), progress, lambda line: logger.info("%s", line), self.molecule
            )


def open_search_engine(device: str, gpu_share: float = 0.9, started: GpuProcess | None = None) -> Engine:
    """Open the search engine for `--device`; "auto" is the first GPU that works, else the CPU.

    If "auto" finds a GPU that cannot be used, one log line gives the reason. $FOLDCLI_GPU_MEMORY, such as 2G,
    limits the bytes that the database uses on each GPU.

    Args:
        device: value of `--device`.
        gpu_share: largest share of the GPU's free memory to use.
        started: the process that `open_gpu` has returned.

    Raises:
        GpuUnavailable: the requested GPU cannot be used.
        InputError: $FOLDCLI_GPU_MEMORY is not a size.
    """
    settings = GpuSettings(cache_dir() / "kernels", gpu_share, max_gpu_bytes())
    engine = create_engine(
        device, settings, lambda line: logger.info("%s", line), CompilationProgress(), started
    )
    if not engine.drives_gpus and next(set_numba_cache_folder().glob("*/gapless.*.nbi"), None) is None:
        logger.info("compiling the search for this machine (once), which takes up to a minute")
    return engine
