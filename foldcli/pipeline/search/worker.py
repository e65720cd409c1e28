"""The process that searches for a run; see `foldcli.pipeline.search.process`.

Requests are an `Opening`, and then queries with settings. Answers are tuples:

    "opened", manifest          the database and the device can be searched
    "failed", reason            they cannot, and the process ends
    "hits", texts               of the next query
    "end"                       of a search
    "error", error              of the search with the next query, which ends the search
    "progress", done, total     see `msa.search.search`
    "log", level, text, fields  a message
"""

import logging
import os
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from foldcli.logs import logger
from foldcli.pipeline.processes.worker_pool import picklable
from foldcli.pipeline.search.process import Opening
from foldcli.process_state import set_up_worker_process
from msa.gpu.device.hardware import gpu_numbers
from msa.gpu.device.opening import allows_several_processes, open_in_background
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from foldcli.pipeline.search.searcher import LocalSearcher
    from foldcli.pipeline.targets.alignment_settings import AlignmentSettings

# seconds between reports of the progress
_REPORT_SECONDS = 0.2


class _Answers(logging.Handler):
    """Answers, which a thread sends; also a log handler that sends messages.

    Args:
        connection: to the process of the run.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._waiting: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._reported = 0.0
        Thread(target=self._send_all, daemon=True).start()

    def put(self, *answer: Any) -> None:
        """Send an answer soon."""
        self._waiting.put(answer)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log message."""
        self.put("log", record.levelno, record.getMessage(), getattr(record, "fields", None))

    def report(self, done: int, total: int | None) -> None:
        """Send the progress of a search, unless it was sent just before."""
        if (now := time.monotonic()) - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self.put("progress", done, total)

    def _send_all(self) -> None:
        while True:
            answer = self._waiting.get()
            try:
                self._connection.send(answer)
            except OSError:
                # `_read_requests` ends the process
                return
            # freed before the next one comes
            del answer


def main() -> None:
    """Serve the socket whose file descriptor is the first argument, until its other end is closed."""
    # schedulers send SIGTERM to all processes of a run; this one ends when the main process does
    set_up_worker_process(os.getppid(), lambda number, frame: None)
    # the process of the run reports errors and draws the progress
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    connection = Connection(int(sys.argv[1]))
    requests: SimpleQueue[Any] = SimpleQueue()
    opening = connection.recv()
    Thread(target=_read_requests, args=(connection, requests), daemon=True).start()
    answers = _Answers(connection)
    logger.handlers, logger.propagate = [logging.NullHandler()], False
    searcher = _open(opening, answers)
    logger.handlers = [answers]
    logger.setLevel(opening.log_level)
    while True:
        queries, settings = requests.get()
        if searcher is not None:
            _search(searcher, queries, settings, answers)


def _search(
    searcher: "LocalSearcher", queries: list[FastaRecord], settings: "AlignmentSettings", answers: _Answers
) -> None:
    """Search, and answer with the hits of each query."""
    from foldcli.pipeline.search.hit_texts import HitTexts

    try:
        for query, hits in searcher.search_many(queries, settings.search, answers.report):
            answers.put("hits", HitTexts.of_hits(query, hits, settings))
    except Exception as error:
        answers.put("error", picklable(error))
    else:
        answers.put("end")


def _read_requests(connection: Connection, requests: SimpleQueue[Any]) -> None:
    """Read requests, and end the process when there can be no more, even in the middle of a search."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv())
    os._exit(0)


def _open(opening: Opening, answers: _Answers) -> "LocalSearcher | None":
    """Open the database and the device, and answer whether they can be searched."""
    try:
        if opening.device != "cpu":
            if not allows_several_processes(gpu_numbers(opening.device)[0]):
                answers.put("failed", "the GPU is in an exclusive mode")
                return None
            # the driver creates a context while numpy is imported
            open_in_background(opening.device)
        from foldcli.pipeline.search.searcher import DatabaseSource

        source = DatabaseSource(opening.db, opening.device)
        searcher = source.make_searcher(source.open(), opening.gpu_share)
    except Exception as error:
        answers.put("failed", str(error))
        return None
    answers.put("opened", searcher.database.manifest)
    return searcher
