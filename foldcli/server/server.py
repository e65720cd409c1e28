"""The server's loop: it accepts clients, reads requests, and writes results as clients take them.

One thread does all that without ever waiting for a client, beside the one thread that searches. So a client
that does not read, sends half a message, sends rubbish or dies is nobody's trouble but its own.
"""

import contextlib
import selectors
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from foldcli.errors import ExitCode, ServerError, describe, is_bug
from foldcli.logs import logger
from foldcli.server.connection import Connection
from foldcli.server.protocol import Hello, SearchRequest, error_message, frame
from foldcli.server.scheduler import MOST_CANDIDATES, Job, Scheduler
from msa.errors import InputError

MOST_CLIENTS = 256
"""Connected at a time; more wait until one leaves."""

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_PEER = struct.Struct("3i")  # process, user, group


@dataclass(frozen=True)
class ServerSettings:
    """How a server treats its clients.

    Args:
        threads: CPU threads of a search.
        drain_seconds: that running requests have for finishing once the server is told to stop.
    """

    threads: int
    drain_seconds: float


class Server:
    """Clients of a scheduler.

    Args:
        hello: what each client is told.
        scheduler: searches.
        settings: see ServerSettings.
    """

    def __init__(self, hello: Hello, scheduler: Scheduler, settings: ServerSettings) -> None:
        self._hello, self._scheduler, self._settings = hello, scheduler, settings
        self._greeting = frame(hello.message())
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._waiting_room: socket.socket | None = None
        self._stopping = self._given_up = False
        self._to_write: deque[Connection] = deque()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, _READ, self._forget_wakes)

    def stop(self) -> None:
        """Drain; called again, give up what still runs. From a signal's handler or any thread."""
        self._given_up, self._stopping = self._stopping, True
        self._wake_up()

    def give_up(self) -> None:
        """Stop without waiting for what runs. From a signal's handler or any thread."""
        self._given_up = self._stopping = True
        self._wake_up()

    def run(self, listener: socket.socket, close_listener: Callable[[], None]) -> None:
        """Serve until `stop`, then let the running requests finish.

        Args:
            listener: accepts clients; does not block.
            close_listener: called when no more are to be accepted.
        """
        self._listen(listener)
        while not self._stopping:
            self._step(None)
        if self._waiting_room is None:
            self._selector.unregister(listener)
        self._waiting_room = None
        close_listener()
        self._drain()

    def _drain(self) -> None:
        deadline = time.monotonic() + self._settings.drain_seconds
        running = sum(connection.job is not None for connection in self._connections)
        logger.info("stopping: no more requests are taken, %d are running", running)
        for connection in list(self._connections):
            if connection.idle:
                self._dismiss(connection, _stopping())
        while self._connections and not self._given_up and (left := deadline - time.monotonic()) > 0:
            self._step(left)
            for connection in list(self._connections):
                if connection.idle:
                    self._close(connection)
        for connection in list(self._connections):
            logger.warning("%s: given up, as the server stops", connection.name)
            self._dismiss(connection, _stopping())
            self._close(connection)

    def _step(self, seconds: float | None) -> None:
        """Do what can be done now, after waiting for it for so long at most."""
        for key, mask in self._selector.select(seconds):
            if isinstance(key.data, Connection):
                self._serve(key.data, mask)
            else:
                key.data(key.fileobj)
        for _ in range(len(self._to_write)):
            self._write(self._to_write.popleft())

    def _serve(self, connection: Connection, mask: int) -> None:
        try:
            if mask & _READ and not connection.closing:
                for message in connection.received():
                    self._take(connection, message)
        except OSError:
            self._close(connection)
        except Exception as error:
            # whatever a client has sent, the others go on
            if is_bug(error):
                logger.error("%s", "".join(traceback.format_exception(error)).rstrip())
            self._refuse(connection, error)
        else:
            if mask & _WRITE:
                self._write(connection)

    def _take(self, connection: Connection, message: dict[str, Any]) -> None:
        """Queue a request, or answer why not."""
        if connection.job is not None:
            raise InputError("a request before the last one has been answered")
        if self._stopping:
            raise _stopping()
        try:
            request = self._request(message)
        except InputError as error:
            logger.info("%s: refused: %s", connection.name, error)
            connection.send(frame(error_message(error)))
            return
        connection.job = Job(request, connection)
        self._scheduler.submit(connection.job)

    def _request(self, message: dict[str, Any]) -> SearchRequest:
        """
        Raises:
            InputError: it is none, or more than this server can hold.
        """
        request = SearchRequest.of(message, self._settings.threads)
        for query in request.queries:
            self._hello.check_length(query)
        # more than there are would only take room on the device
        most = min(request.settings.max_seqs, self._hello.sequences)
        if most > MOST_CANDIDATES:
            raise InputError(f"max_seqs is {most:,}: the server takes up to {MOST_CANDIDATES:,}")
        return replace(request, settings=replace(request.settings, max_seqs=most))

    def _refuse(self, connection: Connection, error: Exception) -> None:
        logger.warning("%s: refused: %s", connection.name, describe(error))
        self._dismiss(connection, error)

    def _dismiss(self, connection: Connection, error: Exception) -> None:
        """Answer an error as the last thing that is said to a client."""
        self._drop(connection)
        connection.send_last(frame(error_message(error, last=True)))
        self._write(connection)

    def _write(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        try:
            if connection.write():
                self._scheduler.nudge()
        except OSError:
            self._close(connection)
            return
        if connection.closing and not connection.unsent:
            self._close(connection)
            return
        # who does not read answers gets to ask no more; that it has died shows in writing too
        reads = not connection.closing and not connection.full
        wanted = (_READ if reads else 0) | (_WRITE if connection.unsent else 0)
        self._selector.modify(connection.peer, wanted, connection)

    def _drop(self, connection: Connection) -> None:
        if (job := connection.job) is not None:
            connection.job = None
            job.dropped = True
            self._scheduler.nudge()

    def _close(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._selector.unregister(connection.peer)
        self._drop(connection)
        connection.close()
        if self._waiting_room is not None:
            self._listen(self._waiting_room)

    def _listen(self, listener: socket.socket) -> None:
        self._waiting_room = None
        self._selector.register(listener, _READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._connections:
                raise
            # too many open files, as a rule: the next that is closed makes room
            logger.warning("cannot accept a client: %s", error)
            self._pause(listener)
            return
        self._accepted += 1
        process, _, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        name = f"client {self._accepted} (process {process})"
        connection = Connection(peer, name, self._hello.max_request_bytes, self._has_something_to_write)
        self._connections.add(connection)
        self._selector.register(peer, _READ, connection)
        logger.debug("%s: connected", name)
        connection.send(self._greeting)
        if len(self._connections) >= MOST_CLIENTS:
            self._pause(listener)

    def _pause(self, listener: socket.socket) -> None:
        self._selector.unregister(listener)
        self._waiting_room = listener

    def _has_something_to_write(self, connection: Connection) -> None:
        self._to_write.append(connection)
        self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            self._wake.send(b"\0")

    def _forget_wakes(self, woken: socket.socket) -> None:
        woken.recv(4096)


def _stopping() -> ServerError:
    return ServerError("the server is stopping; run this again once it is back", ExitCode.MISSING)
