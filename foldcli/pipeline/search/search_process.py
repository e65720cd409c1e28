"""Searches in a process of their own, which for a run starts while this one imports torch.

Importing torch, loading the network, answering HTTP requests and searching are mostly Python. Threads of one
process would wait for each other's interpreter lock. The process opens the databases and the GPUs, and sends
what this process needs of the hits, such as texts.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.processes.worker_pool import WORKER_OPTIONS
from foldcli.progress import Progress
from msa.base.errors import MissingError
from msa.base.hardware import gpu_numbers, has_nvidia_hardware
from msa.base.services.service import Service
from msa.database.file_names import MANIFEST
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.stage import DatabaseSearcher
    from msa.database.database import TargetDatabase
    from msa.engines.engine import ProfileCallback
    from msa.engines.search_settings import SearchSettings
    from msa.hits.hits import Hits

R = TypeVar("R")
T = TypeVar("T")

# a process that is silent for so long hangs: it sends progress, and searches take seconds to minutes
_MAX_SILENCE = 3600.0
# seconds of silence after which a line says what is waited for
_LONG_SILENCE = 60.0


def ignore(done: int, total: int | None) -> None:
    """Show no progress."""


class SearchProcessEnded(Exception):
    """The process has ended; the message says how."""


def needs_process(device: str, predicts_here: bool, *databases: str) -> bool:
    """Return whether the searches of a run should have a process: if this one predicts on the same GPU.

    Args:
        device: value of `--device`.
        predicts_here: whether a network runs in this process.
        databases: values of `--db`; those that still have to be converted are searched by this process.
    """
    one_gpu = device != "cpu" and len(gpu_numbers(device)) == 1
    are_built = all((Path(each) / MANIFEST).is_file() for each in databases)
    return one_gpu and predicts_here and has_nvidia_hardware() and are_built


class SearchProcess:
    """A process that searches databases; used by one thread at a time. It ends with this object.

    Args:
        gpu_share: largest share of the GPU's free memory to use.
        further: folders of further databases; see `JoinedSearcher`.
        many_queries: whether many queries are expected; see `open_gpu`.
    """

    def __init__(
        self, db: str, device: str, gpu_share: float, further: Sequence[str] = (), many_queries: bool = False
    ) -> None:
        explicit = device if device == "cpu" else f"cuda:{','.join(map(str, gpu_numbers(device)))}"
        entry = "foldcli.pipeline.search.search_handler:SearchHandler"
        arguments = (db, explicit, gpu_share, tuple(further), many_queries)
        self.service = Service(entry, *arguments, ended=_ended, **WORKER_OPTIONS)
        self._opened = self.service.request("open")

    def open(
        self, database: "TargetDatabase", open_here: "Callable[[], DatabaseSearcher]"
    ) -> "DatabaseSearcher":
        """Return a searcher of this process, or one in the calling process if this one cannot search."""
        try:
            checksums, drives_gpus = _wait_for(self._opened.result)
            if checksums == database.checksums:
                return ProcessSearcher(database, self, open_here, drives_gpus)
            reason = "the database was replaced"
        except Exception as error:
            reason = str(error)
        logger.debug("searching in the main process: %s", reason)
        self.close()
        return open_here()

    def search(
        self,
        queries: Sequence[FastaRecord],
        settings: "SearchSettings",
        make: "Callable[[FastaRecord, Hits], R]",
        progress: Progress,
        with_further: bool = True,
    ) -> "Iterator[R]":
        """Yield what `make` returns for each query's hits, in order; see `ProcessSearcher.map_hits`.

        Args:
            queries: the queries.
            settings: the settings.
            make: called in the process.
            progress: called with the progress.
            with_further: search the further databases, too.

        Raises:
            SearchProcessEnded: the process has ended.
            Exception: the error of the search with the query after those that were yielded.
        """
        stream = self.service.stream("search", list(queries), settings, make, with_further, progress=progress)
        try:
            while True:
                try:
                    result = _wait_for(stream.next)
                except StopIteration:
                    return
                yield result
        finally:
            stream.close()

    def close(self) -> None:
        """End the process."""
        self.service.kill()


def _ended(code: int) -> SearchProcessEnded:
    return SearchProcessEnded(f"the process of the searches has ended with exit code {code}")


def _wait_for(get: Callable[[float], T]) -> T:
    """Wait for what the process sends next.

    Args:
        get: returns it, or raises TimeoutError if nothing arrives within a number of seconds.
    """
    try:
        return get(_LONG_SILENCE)
    except TimeoutError:
        logger.info("waiting for the process of the searches, up to %.0f minutes", _MAX_SILENCE / 60)
    try:
        return get(_MAX_SILENCE)
    except TimeoutError:
        raise SearchProcessEnded("the process of the searches does not answer") from None


class ProcessSearcher:
    """A database that a process searches; see `foldcli.pipeline.search.stage.Searcher`.

    If the process ends, for example for lack of memory, the calling process searches instead.
    """

    def __init__(
        self,
        database: "TargetDatabase",
        process: SearchProcess,
        open_here: "Callable[[], DatabaseSearcher]",
        drives_gpus: bool,
        with_further: bool = True,
    ) -> None:
        self._database, self._process, self._open_here = database, process, open_here
        self.drives_gpus, self._with_further = drives_gpus, with_further
        self._here: DatabaseSearcher | None = None

    def alone(self) -> "ProcessSearcher":
        """Return a searcher of the first database as if there were no others."""
        database, here = self._database.with_companions(()), self._open_here
        return ProcessSearcher(database, self._process, lambda: here().alone(), self.drives_gpus, False)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts."""
        return self._database.checksums

    def map_hits(
        self,
        queries: Sequence[FastaRecord],
        settings: "SearchSettings",
        make: "Callable[[FastaRecord, Hits], R]",
        progress: Progress | None = None,
        on_profile: "ProfileCallback | None" = None,
    ) -> "Iterator[tuple[FastaRecord, R]]":
        """Yield each query with what `make` returns for its hits, in order; ignore `on_profile`.

        Raises:
            InputError: a query is too short, or a file of the database has changed since it was opened.
        """
        searched = 0
        if self._here is None:
            try:
                found = self._process.search(queries, settings, make, progress or ignore, self._with_further)
                for result in found:
                    searched += 1
                    yield queries[searched - 1], result
                return
            except (SearchProcessEnded, MissingError) as error:
                # the process may have lost its GPU's, or hang and keep the GPU's memory
                logger.warning("%s; the main process searches instead", str(error).partition("\n")[0])
                self._process.close()
                self._here = self._open_here()
        yield from self._here.map_hits(queries[searched:], settings, make, progress)
