"""The tickets of an MSA server: requests on disk, which the end of a server does not lose.

A ticket is a folder with the request (job.json) and, once it is answered, result.tar.gz or error.txt. The
tickets without an answer wait to be searched; only these are in memory.
"""

import io
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Lock
from typing import IO, Literal

from features.chemistry.residues import check_foldable
from features.complexes.pairing import PairStrategy
from foldcli.logs import logger
from foldcli.server.service import MAX_QUERY_RESIDUES
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import read_json, write_json
from msa.base.temporary_names import remove_abandoned_files
from msa.io.fasta import FastaRecord, read_records
from msa.search.database_search import check_query

Kind = Literal["msa", "pair"]
State = Literal["UNKNOWN", "PENDING", "RUNNING", "COMPLETE", "ERROR"]

TICKET_ID = re.compile(r"[A-Za-z0-9_=-]{38}")

_JOB, _RESULT, _ERROR = "job.json", "result.tar.gz", "error.txt"
_MODES: dict[Kind, frozenset[str]] = {
    "msa": frozenset({"", "all", "env", "nofilter"}),
    "pair": frozenset({"", "pairgreedy", "paircomplete", "env"}),
}
# clients ask for the state of a ticket every few seconds; one that has not asked for this time may be gone
_ABANDONED_SECONDS = 60.0


class RateLimited(Exception):
    """The refusal of a ticket, because too many sequences of its client wait."""


@dataclass(frozen=True)
class TicketJob:
    """A request for alignments.

    Args:
        kind: alignments of single sequences, or their paired rows.
        mode: words joined by `-`, as clients of ColabFold's server send them.
        submitted: time in seconds since 1970.
    """

    kind: Kind
    mode: str
    query: str
    client: str
    submitted: float

    @property
    def with_all_databases(self) -> bool:
        """True if further databases than the first are searched."""
        return "env" in self.mode.split("-")

    @property
    def is_filtered(self) -> bool:
        """True if the rows of alignments are filtered."""
        return "nofilter" not in self.mode.split("-")

    @property
    def pair_strategy(self) -> PairStrategy:
        """The species that are paired."""
        return "greedy" if "pairgreedy" in self.mode.split("-") else "complete"

    def records(self) -> list[FastaRecord]:
        """Return the sequences.

        Raises:
            InputError: the mode is unknown, or a sequence cannot be searched with.
        """
        if unknown := set(self.mode.split("-")) - _MODES[self.kind]:
            raise InputError(f"unknown mode {', '.join(sorted(unknown))!r:.60}")
        records = list(read_records(io.BytesIO(self.query.encode()), "query"))
        for record in records:
            check_query(record)
            check_foldable(record.sequence)
            if len(record.sequence) > MAX_QUERY_RESIDUES:
                length = f"{len(record.sequence):,} residues"
                raise InputError(f"{record.id!r} has {length}: the server takes up to {MAX_QUERY_RESIDUES:,}")
        return records


class Ticket:
    """A ticket that waits to be searched.

    Attributes:
        unsearched: the distinct sequences that have not been searched.
        is_running: True once a batch has one of them.
        answered: completes when the ticket has an answer.
    """

    def __init__(self, ticket_id: str, job: TicketJob, records: list[FastaRecord]) -> None:
        self.id, self.job, self.records = ticket_id, job, records
        self.unsearched = list(dict.fromkeys(record.sequence for record in records))
        self.is_running = False
        self.answered: Future[None] = Future()
        # requests that no longer wait for it cannot cancel it
        self.answered.set_running_or_notify_cancel()
        self._last_seen = time.monotonic()

    def see(self) -> None:
        """Note that the client still asks for the ticket."""
        self._last_seen = time.monotonic()

    @property
    def is_abandoned(self) -> bool:
        """True if the client seems to be gone, so that the tickets of others come first."""
        return time.monotonic() - self._last_seen > _ABANDONED_SECONDS


class TicketQueue:
    """All tickets of a server. Its methods may be called from any thread.

    Args:
        max_waiting: largest number of waiting sequences of a client, unless they are of a single ticket.
    """

    def __init__(self, folder: Path, max_waiting: int) -> None:
        self._folder, self._max_waiting = folder, max_waiting
        self._lock, self._changed = Lock(), Event()
        self._waiting: dict[str, Ticket] = {}
        # tickets whose failure could not be written
        self._failed: set[str] = set()
        for path in folder.glob(f"*/{_JOB}"):
            ticket_id = path.parent.name
            remove_abandoned_files(path.parent)
            if self._answer(ticket_id) is None:
                self._restore(ticket_id, path)

    def _restore(self, ticket_id: str, path: Path) -> None:
        """Add a ticket of an earlier server that has no answer."""
        try:
            job = read_json(path, TicketJob)
            self._waiting[ticket_id] = Ticket(ticket_id, job, job.records())
        except (InputError, ValueError, OSError) as error:
            logger.warning("%s: damaged, so the ticket is dropped: %s", path, error)

    def submit(self, ticket_id: str, job: TicketJob) -> State:
        """Add a ticket, unless it exists, and return its state. A failed one is searched again.

        Raises:
            InputError: see `TicketJob.records`.
            RateLimited: too many sequences of the client wait.
            OSError: the ticket cannot be written.
        """
        records, folder = job.records(), self._folder / ticket_id
        with self._lock:
            state = self.state(ticket_id)
            if state not in ("UNKNOWN", "ERROR"):
                return state
            waiting = sum(
                len(each.records) for each in self._waiting.values() if each.job.client == job.client
            )
            if waiting and waiting + len(records) > self._max_waiting:
                raise RateLimited(
                    f"{waiting} sequences of this client wait; the limit is {self._max_waiting}"
                )
            (folder / _ERROR).unlink(missing_ok=True)
            self._failed.discard(ticket_id)
            self._waiting[ticket_id] = ticket = Ticket(ticket_id, job, records)
        # a slow disk takes many tickets at once
        try:
            write_json(folder / _JOB, asdict(job))
        except OSError:
            self._remove(ticket)
            raise
        self._changed.set()
        return "PENDING"

    def state(self, ticket_id: str) -> State:
        """Return the state of a ticket, whose client has asked for it."""
        if (ticket := self._waiting.get(ticket_id)) is not None:
            ticket.see()
            return "RUNNING" if ticket.is_running else "PENDING"
        if ticket_id in self._failed:
            return "ERROR"
        answer = self._answer(ticket_id)
        return "UNKNOWN" if answer is None else "COMPLETE" if answer.name == _RESULT else "ERROR"

    def find(self, ticket_id: str) -> Ticket | None:
        """Return a ticket that waits; None if there is none with this id."""
        return self._waiting.get(ticket_id)

    def result(self, ticket_id: str) -> Path:
        """Return the path of the archive with the results."""
        return self._folder / ticket_id / _RESULT

    def _answer(self, ticket_id: str) -> Path | None:
        paths = (self._folder / ticket_id / name for name in (_RESULT, _ERROR))
        return next((path for path in paths if path.is_file()), None)

    def waiting(self) -> list[Ticket]:
        """Return the tickets that wait, the oldest first."""
        with self._lock:
            return sorted(self._waiting.values(), key=lambda ticket: ticket.job.submitted)

    def wait(self, seconds: float) -> None:
        """Wait for tickets that came after the last call, or `wake`."""
        self._changed.wait(seconds)
        self._changed.clear()

    def wake(self) -> None:
        """End waiting for tickets."""
        self._changed.set()

    def complete(self, ticket: Ticket, write: Callable[[IO[bytes]], None]) -> None:
        """Write the results of a ticket with `write`."""
        with atomic_write(self.result(ticket.id), "wb") as stream:
            write(stream)
        self._remove(ticket)

    def fail(self, ticket: Ticket, reason: str) -> None:
        """Write the reason why a ticket has no results."""
        try:
            with atomic_write(self._folder / ticket.id / _ERROR) as stream:
                stream.write(f"{reason}\n")
        except OSError as error:
            logger.error("%s", error)
            self._failed.add(ticket.id)
        self._remove(ticket)

    def _remove(self, ticket: Ticket) -> None:
        with self._lock:
            if self._waiting.get(ticket.id) is ticket:
                del self._waiting[ticket.id]
                ticket.answered.set_result(None)

    def prune(self, seconds: float) -> None:
        """Remove the tickets that were answered before this time."""
        for path in self._folder.iterdir():
            with self._lock:
                answer = self._answer(path.name)
                if answer is not None and time.time() - answer.stat().st_mtime > seconds:
                    shutil.rmtree(path, ignore_errors=True)
