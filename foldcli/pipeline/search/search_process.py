"""Processes for searches and their GPU, which start while this one imports numpy or torch.

Importing torch, loading the network, answering HTTP requests and searching are mostly Python. Threads of one
process would wait for each other's interpreter lock. A search process opens the databases and the GPUs, and
sends what this process needs of the hits, such as texts. This module does not import numpy.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foldcli.logs import logger
from foldcli.pipeline.processes.worker_pool import WORKER_OPTIONS
from foldcli.progress import Progress
from msa.base.errors import MissingError
from msa.base.hardware import gpu_numbers, has_nvidia_hardware
from msa.base.services.service import Service
from msa.database.file_names import MANIFEST
from msa.gpu.device.cuda_context import open_in_background
from msa.gpu.worker.process_start import GpuProcess

if TYPE_CHECKING:
    from foldcli.pipeline.search.protocols import DatabaseSearcher
    from msa.database.database import TargetDatabase
    from msa.engines.engine import ProfileCallback
    from msa.engines.search_settings import SearchSettings
    from msa.hits.hits import Hits
    from msa.io.fasta import FastaRecord

R = TypeVar("R")
T = TypeVar("T")

# of about 300 proteins, whose search in this process takes as long as one in another with its start
_MANY_QUERY_BYTES = 50_000
# a process that is silent for so long hangs: it sends progress, and searches take seconds to minutes
_MAX_SILENCE = 3600.0
# seconds of silence after which a line says what is waited for
_LONG_SILENCE = 60.0


def open_gpu(device: str, many_queries: bool) -> GpuProcess | None:
    """Begin to open the only GPU of a device: in this process, or for many queries in another.

    The other one works while this process holds the interpreter's lock, and a further one scores candidates
    (`msa.gpu.remote_worker`). For a few queries, its start would take longer than the search.

    Returns:
        The process that opens the GPU, if it is another one.
    """
    numbers = gpu_numbers(device)
    if device != "cpu" and len(numbers) == 1 and many_queries and has_nvidia_hardware():
        return GpuProcess(numbers[0], scores=True)
    open_in_background(device)
    return None


def are_many(queries: Sequence[str]) -> bool:
    """Return True if files have many queries; those that cannot be read are reported later."""
    total = 0
    for path in map(Path, queries):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total >= _MANY_QUERY_BYTES


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
    return one_gpu and predicts_here and has_nvidia_hardware() and are_built(*databases)


def are_built(*databases: str) -> bool:
    """Return whether no database, by its path, has to be converted."""
    return all((Path(each) / MANIFEST).is_file() for each in databases)


class SearchProcess:
    """A process that searches databases; used by one thread at a time. It ends with this object.

    Args:
        gpu_share: largest share of the GPU's free memory to use.
        others: folders of further databases; see `JoinedSearcher`.
        many_queries: whether many queries are expected; see `open_gpu`.
    """

    def __init__(
        self, db: str, device: str, gpu_share: float, others: Sequence[str] = (), many_queries: bool = False
    ) -> None:
        explicit = device if device == "cpu" else f"cuda:{','.join(map(str, gpu_numbers(device)))}"
        entry = "foldcli.pipeline.search.search_handler:SearchHandler"
        arguments = (db, explicit, gpu_share, tuple(others), many_queries)
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
        queries: "Sequence[FastaRecord]",
        settings: "SearchSettings",
        make: "Callable[[FastaRecord, Hits], R]",
        progress: Progress | None = None,
        with_others: bool = True,
    ) -> "Iterator[R]":
        """Yield what `make` returns for each query's hits in all databases or in the first; see `Searcher`.

        Raises:
            SearchProcessEnded: the process has ended, or does not answer.
            InputError: a query is too short, or a file of the database has changed since it was opened.
            MissingError: the process has lost its GPU.
        """
        stream = self.service.stream("search", list(queries), settings, make, with_others, progress=progress)
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


@dataclass(eq=False)
class ProcessSearcher:
    """A database that a process searches; see `foldcli.pipeline.search.protocols.Searcher`.

    If the process ends, for example for lack of memory, the calling process searches instead.
    """

    database: "TargetDatabase"
    process: SearchProcess
    open_here: "Callable[[], DatabaseSearcher]"
    drives_gpus: bool
    with_others: bool = True
    _here: "DatabaseSearcher | None" = field(default=None, init=False)

    def alone(self) -> "ProcessSearcher":
        """Return a searcher of the first database as if there were no others."""
        database, here = self.database.with_companions(()), self.open_here
        return replace(self, database=database, open_here=lambda: here().alone(), with_others=False)

    def close(self) -> None:
        """End the process."""
        self.process.close()

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of the database's parts."""
        return self.database.checksums

    def map_hits(
        self,
        queries: "Sequence[FastaRecord]",
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
                found = self.process.search(queries, settings, make, progress, self.with_others)
                for result in found:
                    searched += 1
                    yield queries[searched - 1], result
                return
            except (SearchProcessEnded, MissingError) as error:
                # it may hang, or have lost the process of its GPU, and still hold memory of the GPU
                logger.warning("%s; the main process searches instead", str(error).partition("\n")[0])
                self.process.close()
                self._here = self.open_here()
        yield from self._here.map_hits(queries[searched:], settings, make, progress)
