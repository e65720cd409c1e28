"""The opening of searches, from databases and devices as the command line names them.

| opened for                               | process that searches | function                       |
|------------------------------------------|-----------------------|--------------------------------|
| `search`, `serve`, `cache-features`, RNA | this one              | `open_searcher`                |
| `fold`, `screen`, sessions               | this or another one   | `SearchOptions.open`           |
| `serve --http`                           | another one           | `SearchProcess.open`           |
| `search --exact`                         | this one              | `ExactSearcher(source.open())` |
| `search --server`                        | the server            | `RemoteSearcher(path)`         |

`open_searcher` returns a `LocalSearcher`, or for several databases a `JoinedSearcher`. `SearchOptions.open`
calls it or `SearchProcess.open`, which returns a `ProcessSearcher`; the process itself calls `open_searcher`
too (`search_handler`). If the process cannot search, this one does.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from foldcli.logs import logger
from foldcli.paths import cache_dir
from foldcli.pipeline.search.search_process import are_built
from foldcli.pipeline.search.searcher import JoinedSearcher, LocalSearcher
from foldcli.process_state import set_numba_cache_folder
from foldcli.progress import CompilationProgress, progress_bar
from foldcli.values import parse_size
from msa.base.atomic import writing_cache
from msa.base.errors import InputError
from msa.database.database import BothStrands, TargetDatabase
from msa.engines.engine import Engine
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.io.molecules import PROTEIN, RNA
from msa.search.engine_selection import create_engine


@dataclass(frozen=True)
class DatabaseSource:
    """A target database as named on the command line, or several, and the device of its searches.

    Args:
        db: a database from `foldcli createdb`, or a FASTA file or an MMseqs2 database.
        others: further databases, which are searched with the profiles of the search of the first.
        started: the process of `open_gpu` for the only database.
        molecule: kind of the sequences that are searched, PROTEIN or RNA.
        both_strands: search the reverse complements of RNA, too.
    """

    db: str
    device: str
    others: tuple[str, ...] = ()
    started: GpuProcess | None = None
    molecule: Literal["protein", "rna"] = PROTEIN
    both_strands: bool = False

    def open(self) -> TargetDatabase:
        """Open the database, first converting a FASTA file or an MMseqs2 database.

        Remarks of `createdb` about the file's content are logged even if an earlier run converted it.

        Raises:
            MissingError: there is no such path.
            InputError: `db` is not a database, is damaged, or has sequences of another kind.
        """
        database = TargetDatabase.open(Path(self.db)) if are_built(self.db) else self._convert()
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
            reason = "a database of RNA, and this search is for proteins"
            raise InputError(f"{reason}; RNA: `search --molecule rna`, and --rna-db for jobs", self.db)
        raise InputError("a database of proteins; one of RNA: foldcli createdb --molecule rna", self.db)

    def open_existing(self) -> TargetDatabase | None:
        """Open the database, or return None if it or another one would have to be converted first."""
        if self.others:
            opened = [replace(self, db=db, others=()).open_existing() for db in (self.db, *self.others)]
            databases = [each for each in opened if each is not None]
            return databases[0].with_companions(databases[1:]) if len(databases) == len(opened) else None
        folder = Path(self.db)
        if not are_built(self.db):
            from msa.database.cached_databases import database_path  # numba, which databases do not need

            folder = database_path(self.db, cache_dir(), self.molecule)
            if folder != Path(self.db) and not are_built(str(folder)):
                return None
        database = TargetDatabase.open(folder)
        self._check_molecule(database)
        return database

    def _convert(self) -> TargetDatabase:
        from msa.database.cached_databases import open_or_build_database  # numba; see above

        with writing_cache(cache_dir()), progress_bar("building the database", "B") as progress:
            return open_or_build_database(
                Path(self.db), cache_dir(), progress, lambda line: logger.info("%s", line), self.molecule
            )


def open_searcher(
    source: DatabaseSource, database: TargetDatabase | None = None, gpu_share: float = 0.9
) -> LocalSearcher | JoinedSearcher:
    """Open databases, and a search engine for each, in this process.

    Args:
        source: the databases.
        database: the first one with the others as companions, if they are open.
        gpu_share: largest share of the GPU's free memory to use for all.

    Raises:
        GpuUnavailable: the requested GPU cannot be used.
        MissingError, InputError: see `DatabaseSource.open`.
    """
    if database is None and are_built(source.db, *source.others):
        database = source.open()
    share = gpu_share / (1 + len(source.others))
    engines = [open_search_engine(source.device, share, source.started) for _ in (source.db, *source.others)]
    # a conversion may take long, so the engines come first
    database = source.open() if database is None else database
    if not database.companions:
        return LocalSearcher(database, engines[0])
    databases = (database.with_companions(()), *database.companions)
    return JoinedSearcher(
        [
            LocalSearcher(each.with_companions([other for other in databases if other is not each]), engine)
            for each, engine in zip(databases, engines, strict=True)
        ]
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


def max_gpu_bytes() -> int | None:
    """Return $FOLDCLI_GPU_MEMORY in bytes, or None if it is not set.

    Raises:
        InputError: it is not a size.
    """
    text = os.environ.get("FOLDCLI_GPU_MEMORY", "")
    if not text:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise InputError(f"FOLDCLI_GPU_MEMORY: {error}") from None
