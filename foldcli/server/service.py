"""The lifecycle of a server process: load database and engine, serve clients, clean up."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

from foldcli.errors import ExitCode
from foldcli.logs import logger
from foldcli.pipeline.search.searcher import DatabaseSource, LocalSearcher
from foldcli.process_state import on_stop_signals
from foldcli.server.protocol import Hello
from foldcli.server.scheduler import HitStream, Scheduler
from foldcli.server.server import Server, ServerSettings
from foldcli.server.socket_file import claim_socket, open_listener
from msa.hits.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase

# twice the length of the longest known protein; a query's profile takes about one kilobyte per residue
MAX_QUERY_RESIDUES = 100_000
# length of the query of the first search
_CHECK_RESIDUES = 300
# one in this many residues of the query is replaced, since identical sequences join no profile
_CHANGED = 8
# time limit for the search thread to end
_JOIN_SECONDS = 1.0


@dataclass(frozen=True)
class SocketService:
    """A server process.

    Args:
        db: database from `foldcli createdb`, or a FASTA file or MMseqs2 database.
        max_request_bytes: maximum size of a request.
    """

    db: str
    path: Path
    device: str
    max_request_bytes: int
    settings: ServerSettings

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain.

        Raises:
            InputError: the socket is taken, or the database is damaged.
            MissingError: there is no such database, or the requested GPU cannot be used.
            Exception: the error that stopped the engine.
        """
        search_thread: _SearchThread | None = None
        with SignalGuard() as guard, claim_socket(self.path):
            logger.info("loading %s", self.db)
            # imports numba; at the top it would delay the signal handlers
            searcher = DatabaseSource(self.db, self.device).open_searcher()
            search_thread = _SearchThread(searcher, self.settings.threads)
            search_thread.start()
            search_thread.ready.result()
            guard.raise_if_interrupted()
            self._serve(searcher, search_thread)
        if search_thread is not None and not search_thread.try_to_stop():
            exit_during_search()

    def _serve(self, searcher: "LocalSearcher", search_thread: "_SearchThread") -> None:
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
        server = Server(hello, search_thread.scheduler, self.settings)
        verification = Verification(searcher.database)
        for failure in (search_thread.failure, verification.failure):
            failure.add_done_callback(lambda _: server.abort())
        on_stop_signals(lambda *_: server.stop())
        listener = open_listener(self.path)

        def close_listener() -> None:
            listener.close()
            self.path.unlink(missing_ok=True)

        logger.info(
            "ready: %s serves %s, %d sequences, %d residues, on %s",
            self.path, hello.database, hello.sequences, hello.residues, hello.device,
        )  # fmt: skip
        verification.start()
        server.run(listener, close_listener)
        for failure in (search_thread.failure, verification.failure):
            if failure.done():
                failure.result()  # raises the error
        logger.info("stopped")


class _SearchThread(Thread):
    """The only thread that uses the engine.

    Attributes:
        ready: completes when the first search has compiled the kernels and loaded the database.
        failure: gets an error when the engine no longer works.
    """

    def __init__(self, searcher: "LocalSearcher", threads: int) -> None:
        super().__init__(name="search", daemon=True)
        self._searcher = searcher
        self.ready: Future[None] = Future()
        self.failure: Future[None] = Future()
        self._check = partial(check_engine, searcher, threads)
        self.scheduler = Scheduler(self._search, self._check)

    def run(self) -> None:
        """Run a first search, then the scheduler."""
        try:
            self._check()
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(None)
        try:
            self.scheduler.run()
        except BaseException as error:
            self.failure.set_exception(error)

    def try_to_stop(self) -> bool:
        """Ask the thread to stop; return True if it ends within a second."""
        self.scheduler.stop()
        self.join(_JOIN_SECONDS)
        return not self.is_alive()

    def _search(self, queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
        yield from self._searcher.search_many(queries, settings)


def check_engine(searcher: "LocalSearcher", threads: int) -> None:
    """Search with `check_query`."""
    for _ in searcher.search_many([check_query(searcher.database)], SearchSettings(threads=threads)):
        pass


def check_query(targets: "TargetDatabase") -> FastaRecord:
    """Return a query that has a similar sequence: the longest target, repeated or cut to 300 residues."""
    residues = list((targets.sequence(len(targets) - 1) * _CHECK_RESIDUES)[:_CHECK_RESIDUES])
    residues[::_CHANGED] = "A" * len(residues[::_CHANGED])
    return FastaRecord("check", "".join(residues))


def exit_during_search() -> NoReturn:
    """End the process while a thread is in a search, whose clients are gone; Python waits for threads."""
    sys.stderr.flush()
    os._exit(ExitCode.DONE)


class Verification(Thread):
    """A thread that compares all bytes of the database with their checksums, once."""

    def __init__(self, database: "TargetDatabase") -> None:
        super().__init__(name="verification", daemon=True)
        self._database = database
        self.failure: Future[None] = Future()

    def run(self) -> None:
        """Read the database."""
        try:
            self._database.verify()
        except Exception as error:
            self.failure.set_exception(error)
        else:
            logger.info("%s: all checksums match", self._database.path)


class _StartupInterrupted(BaseException):
    """The arrival of a signal before the server is ready.

    Not a KeyboardInterrupt: after one has passed through `exec`, as it may during an import, Python kills
    itself with SIGINT instead of returning an exit code.
    """


class SignalGuard:
    """A guard of a server's startup, which a signal ends at once, since there is nothing to drain.

    As a context, it ends quietly if a signal has come before the server installs its own handler.
    """

    def __init__(self) -> None:
        self._interrupted = False

    def __enter__(self) -> "SignalGuard":
        on_stop_signals(self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        # an import that a signal interrupts may raise any exception
        if error is None or not self._interrupted:
            return False
        logger.info("stopped before it was ready")
        return True

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True
        raise _StartupInterrupted

    def raise_if_interrupted(self) -> None:
        """Raise the signal's exception again, in case an import has swallowed it."""
        if self._interrupted:
            raise _StartupInterrupted


def device_name(drives_gpus: bool, requested: str) -> str:
    """Return the device of the searches, given `--device`."""
    if not drives_gpus:
        return "cpu"
    return "cuda:0" if requested in ("auto", "cuda") else requested
