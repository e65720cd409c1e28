"""A server from its start to its end: database and engine made ready, clients served, everything tidied."""

import os
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from foldcli.errors import ExitCode
from foldcli.logs import logger
from foldcli.pipeline.searcher import LocalSearcher, open_here
from foldcli.process_state import on_stop_signals
from foldcli.server.address import claimed, listen
from foldcli.server.protocol import Hello
from foldcli.server.scheduler import Found, Scheduler
from foldcli.server.server import Server, ServerSettings
from msa.io.fasta import FastaRecord
from msa.search.settings import SearchSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_QUERY_RESIDUES = 100_000
"""Twice as long as the longest protein known; a query's profile takes about a kilobyte a residue."""

_CHECK_RESIDUES = 300
_LEAVE_SECONDS = 1.0


@dataclass(frozen=True)
class Service:
    """What a server serves, and where.

    Args:
        db: database from `foldcli createdb`, or FASTA file.
        path: the socket.
        device: value of `--device`.
        max_request_bytes: of a message from a client.
        settings: see ServerSettings.
    """

    db: str
    path: Path
    device: str
    max_request_bytes: int
    settings: ServerSettings

    def run(self) -> None:
        """Serve until a SIGTERM or SIGINT, then drain.

        Raises:
            InputError: the socket is taken, or there is no such database.
            MissingError: a GPU was asked for and cannot be used.
            Exception: what the engine raised when it stopped working.
        """
        search: _SearchThread | None = None
        # until there is something to drain, they just end the start
        start = _Start()
        on_stop_signals(start.end)
        try:
            with claimed(self.path):
                logger.info("loading %s", self.db)
                searcher = open_here(self.db, self.device)
                search = _SearchThread(searcher, self.settings.threads)
                search.start()
                search.ready.result()
                start.check()
                self._serve(searcher, search)
        except BaseException:
            # an import that a signal breaks off may raise anything
            if not start.ended:
                raise
            logger.info("stopped before it was ready")
        if search is not None and not search.ended():
            # it is in a search that nobody waits for any more, and the interpreter cannot end beside it
            sys.stderr.flush()
            os._exit(ExitCode.DONE)

    def _serve(self, searcher: LocalSearcher, search: "_SearchThread") -> None:
        manifest = searcher.targets.manifest
        device = _device(searcher, self.device)
        hello = Hello(
            self.db,
            manifest.sequences,
            manifest.residues,
            manifest.checksums,
            device,
            self.max_request_bytes,
            MOST_QUERY_RESIDUES,
        )
        server = Server(hello, search.scheduler, self.settings)
        search.broken.add_done_callback(lambda _: server.give_up())
        on_stop_signals(lambda *_: server.stop())
        listener = listen(self.path)

        def close_listener() -> None:
            listener.close()
            self.path.unlink(missing_ok=True)

        logger.info(
            "ready: %s serves %s, %d sequences, %d residues, on %s",
            self.path,
            self.db,
            manifest.sequences,
            manifest.residues,
            device,
        )
        server.run(listener, close_listener)
        if search.broken.done():
            search.broken.result()
        logger.info("stopped")


class _SearchThread(Thread):
    """The one thread that uses the engine, from its first search on.

    Attributes:
        ready: done when a first search has compiled the kernels and put the database where it stays.
        broken: done, with the error, when the engine has stopped working.
    """

    def __init__(self, searcher: LocalSearcher, threads: int) -> None:
        super().__init__(name="search", daemon=True)
        self._searcher, self._threads = searcher, threads
        self.ready: Future[None] = Future()
        self.broken: Future[None] = Future()
        self.scheduler = Scheduler(self._search, self._check)

    def run(self) -> None:
        try:
            self._check()
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(None)
        try:
            self.scheduler.run()
        except BaseException as error:
            self.broken.set_exception(error)

    def ended(self) -> bool:
        """Ask the thread to end; whether it has."""
        self.scheduler.stop()
        self.join(_LEAVE_SECONDS)
        return not self.is_alive()

    def _search(self, queries: "Sequence[FastaRecord]", settings: SearchSettings) -> Found:
        yield from self._searcher.search_many(queries, settings)

    def _check(self) -> None:
        """Search with the longest target, which finds at least itself, and with a high score."""
        targets = self._searcher.targets
        query = FastaRecord("check", (targets.sequence(len(targets) - 1) * _CHECK_RESIDUES)[:_CHECK_RESIDUES])
        settings = SearchSettings(threads=self._threads)
        for _ in self._search([query], settings):
            pass


class _StartEnded(BaseException):
    """A signal came before there was anything to drain.

    Not a KeyboardInterrupt: when one has passed through `exec`, as in an import it may, Python ends by SIGINT
    whatever the exit code.
    """


class _Start:
    """A start that a signal may end."""

    def __init__(self) -> None:
        self.ended = False

    def end(self, *_: object) -> None:
        self.ended = True
        raise _StartEnded

    def check(self) -> None:
        """Raise what `end` raised, should something have swallowed it."""
        if self.ended:
            raise _StartEnded


def _device(searcher: LocalSearcher, asked: str) -> str:
    from msa.cpu.engine import CpuEngine

    if isinstance(searcher.engine, CpuEngine):
        return "cpu"
    return "cuda:0" if asked in ("auto", "cuda") else asked
