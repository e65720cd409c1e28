"""The lifecycle of a server process: load database and engine, serve clients, clean up."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from foldcli.errors import interruption
from foldcli.logs import logger
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.process_state import on_stop_signals
from foldcli.server.protocol import Hello
from foldcli.server.scheduler import Scheduler
from foldcli.server.server import Server
from foldcli.server.socket_file import claim_socket, open_listener
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase

# twice the length of the longest known protein; a query's profile takes about one kilobyte per residue
MAX_QUERY_RESIDUES = 100_000
# length of the query of the first search
_CHECK_RESIDUES = 300
# one in this many residues of the query is replaced, since identical sequences join no profile
_CHANGED = 8


@dataclass(frozen=True)
class SocketService:
    """A server process.

    Args:
        db: database from `foldcli createdb`, or a FASTA file or MMseqs2 database.
        max_request_bytes: maximum size of a request.
        threads: number of CPU threads of a search.
        drain_seconds: time limit for running requests to finish when the server stops.
    """

    db: str
    path: Path
    device: str
    max_request_bytes: int
    threads: int
    drain_seconds: float

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain.

        Raises:
            InputError: the socket is taken, or the database is damaged.
            MissingError: there is no such database, or the requested GPU cannot be used.
            Exception: the error that stopped the engine.
        """
        with quiet_stop_before_ready(), claim_socket(self.path):
            logger.info("loading %s", self.db)
            # imports numba; at the top it would delay the signal handlers
            searcher = open_searcher(DatabaseSource(self.db, self.device))
            assert isinstance(searcher, LocalSearcher)
            check = partial(check_engine, searcher, self.threads)
            scheduler = Scheduler(searcher.search_many, check)
            search_thread = SearchThread(check, scheduler.run)
            search_thread.start()
            search_thread.ready.result()
            self._serve(searcher, scheduler, search_thread.failure)

    def _serve(self, searcher: LocalSearcher, scheduler: Scheduler, engine_failure: "Future[None]") -> None:
        manifest = searcher.database.manifest
        hello = Hello(
            database=self.db,
            sequences=manifest.sequences,
            residues=manifest.residues,
            checksums=manifest.checksums,
            device=device_name(searcher.engine.drives_gpus, self.device),
            max_request_bytes=self.max_request_bytes,
            max_query_residues=MAX_QUERY_RESIDUES,
        )
        server = Server(hello, scheduler, self.threads, self.drain_seconds)
        on_stop_signals(lambda *_: server.stop())
        listener = open_listener(self.path)

        def close_listener() -> None:
            listener.close()
            self.path.unlink(missing_ok=True)

        logger.info(
            "ready: %s serves %s, %d sequences, %d residues, on %s",
            self.path, hello.database, hello.sequences, hello.residues, hello.device,
        )  # fmt: skip
        failures = engine_failure, verify_in_background(searcher.database)
        for failure in failures:
            failure.add_done_callback(lambda _: server.abort())
        server.run(listener, close_listener)
        scheduler.stop()
        raise_failures(failures)
        logger.info("stopped")


class SearchThread(Thread):
    """The only thread that uses the engine.

    Args:
        check: runs a first search, which compiles the kernels and loads the database.
        work: searches until the server stops.

    Attributes:
        ready: completes with the first search.
        failure: gets an error when the engine no longer works.
    """

    def __init__(self, check: Callable[[], None], work: Callable[[], None]) -> None:
        super().__init__(name="search", daemon=True)
        self._check, self._work = check, work
        self.ready: Future[None] = Future()
        self.failure: Future[None] = Future()

    def run(self) -> None:
        """Run the first search, then work."""
        future = self.ready
        try:
            self._check()
            self.ready.set_result(None)
            future = self.failure
            self._work()
        except BaseException as error:
            future.set_exception(error)


def check_engine(searcher: LocalSearcher, threads: int) -> None:
    """Search with `check_query`."""
    for _ in searcher.search_many([check_query(searcher.database)], SearchSettings(threads=threads)):
        pass


def check_query(targets: "TargetDatabase") -> FastaRecord:
    """Return a query that has a similar sequence: the longest target, repeated or cut to 300 residues."""
    residues = list((targets.sequence(len(targets) - 1) * _CHECK_RESIDUES)[:_CHECK_RESIDUES])
    residues[::_CHANGED] = "A" * len(residues[::_CHANGED])
    return FastaRecord("check", "".join(residues))


def verify_in_background(database: "TargetDatabase") -> "Future[None]":
    """Compare all bytes of a database with their checksums; the future gets an error."""
    failure: Future[None] = Future()

    def verify() -> None:
        try:
            database.verify()
        except Exception as error:
            failure.set_exception(error)
        else:
            logger.info("%s: all checksums match", database.path)

    Thread(target=verify, name="verification", daemon=True).start()
    return failure


def raise_failures(failures: Iterable["Future[None]"]) -> None:
    """Raise the first error that a future has."""
    for failure in failures:
        if failure.done():
            failure.result()


@contextlib.contextmanager
def quiet_stop_before_ready() -> Iterator[None]:
    """End the startup of a server quietly at a signal, since there is nothing to drain."""
    try:
        yield
    except BaseException as error:
        # an import that a signal interrupts may raise any exception
        if interruption(error) is None:
            raise
        logger.info("stopped before it was ready")


def device_name(drives_gpus: bool, requested: str) -> str:
    """Return the device of the searches, given `--device`."""
    if not drives_gpus:
        return "cpu"
    return "cuda:0" if requested in ("auto", "cuda") else requested
