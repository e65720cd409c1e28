"""The server's event loop: accept clients, read requests, and write results as clients read them.

One thread does all this and never waits for a single client; a second thread searches. Other clients are
therefore not affected by a client that does not read, sends half a message or garbage, or dies.
"""

import contextlib
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from foldcli.errors import ExitCode, ServerError, describe, log_bug
from foldcli.logs import logger
from foldcli.server.protocol import Hello, MessageDecoder, SearchRequest, encode_message, error_message
from foldcli.server.scheduler import MAX_CHUNK_HITS, ScheduledRequest, Scheduler
from msa.base.errors import InputError

# maximum number of connected clients; more wait until one disconnects
MAX_CLIENTS = 256
# maximum number of connected clients of each user other than the server's; more are refused
MAX_CLIENTS_OF_ANOTHER_USER = 64
# time without a request or a read after which a connection is closed if others wait for one
INACTIVE_SECONDS = 60.0
# size of a client's unread results at which its search pauses
MAX_UNREAD_BYTES = 8 << 20

_RECEIVE_BYTES = 1 << 18
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_PEER = struct.Struct("3i")  # ids of process, user and group


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server.

    Args:
        threads: number of CPU threads of a search.
        drain_seconds: time limit for running requests to finish when the server stops.
    """

    threads: int
    drain_seconds: float


class ClientConnection:
    """A connected client, with its unsent messages and its current request.

    The search thread sends to it; all other calls come from the server's loop. No method blocks: bytes that
    cannot be written yet are kept, and `accepts_results` tells the search when to pause.

    Args:
        limit: maximum size of a request in bytes.
        on_send: called, from any thread, when there is something to write.
    """

    def __init__(
        self,
        peer: socket.socket,
        name: str,
        user: int,
        limit: int,
        on_send: Callable[["ClientConnection"], None],
    ) -> None:
        peer.setblocking(False)
        self.peer, self.name, self.user = peer, name, user
        # the current request, until its results are complete
        self.scheduled: ScheduledRequest | None = None
        self.is_closing = False
        self._on_send = on_send
        self._decoder = MessageDecoder(limit)
        self._lock = Lock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._paused = False
        self._last_active = time.monotonic()
        self._discards_messages = False

    def accepts_results(self) -> bool:
        """Return True unless too many results are unread; log it when the search pauses."""
        was_paused, self._paused = self._paused, self.is_backlogged
        if self._paused and not was_paused:
            logger.debug("%s: its search waits until more of its results are read", self.name)
        return not self._paused

    def send(self, message: bytes) -> None:
        """Queue a message."""
        with self._lock:
            self._enqueue(message)
        self._on_send(self)

    def _enqueue(self, message: bytes) -> None:
        if not self._discards_messages:
            self._unsent.append(memoryview(message))
            self._unsent_bytes += len(message)

    def send_last(self, message: bytes) -> None:
        """Queue a message; send and receive nothing after it."""
        self.send(message)
        with self._lock:
            self._discards_messages = True
        self.is_closing = True

    def finish(self, message: bytes) -> None:
        """Queue the last message of the current request."""
        with self._lock:
            # The request ends and its message is queued under one lock: a client may send its next request
            # once it has read this message, and `is_idle` must not be true before the message is queued.
            self.scheduled = None
            self._last_active = time.monotonic()
            self._enqueue(message)
        self._on_send(self)

    @property
    def is_backlogged(self) -> bool:
        """True if the unsent messages have reached the limit, so that a search should pause."""
        return self._unsent_bytes >= MAX_UNREAD_BYTES

    @property
    def has_unsent_messages(self) -> bool:
        """True if there are unsent messages."""
        return bool(self._unsent_bytes)

    @property
    def is_idle(self) -> bool:
        """True if no request is running and no message is unsent."""
        with self._lock:
            return self.scheduled is None and not self._unsent_bytes

    @property
    def inactive_seconds(self) -> float:
        """Seconds since the client last completed a request or read something; 0 while its request runs."""
        with self._lock:
            waits_for_client = self.scheduled is None or self._unsent_bytes
            return time.monotonic() - self._last_active if waits_for_client else 0.0

    def receive(self) -> Iterator[dict[str, Any]]:
        """Read from the socket, and yield the messages that are now complete.

        Raises:
            ConnectionError: the client is gone.
            InputError: the client sent an invalid or too long message.
        """
        try:
            data = self.peer.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        for message in self._decoder.feed(data):
            self._last_active = time.monotonic()
            yield message

    def write(self) -> bool:
        """Write as much as the client takes now; return True if a paused search may continue.

        Raises:
            ConnectionError: the client is gone.
        """
        with self._lock:
            unsent_before = self._unsent_bytes
            with contextlib.suppress(BlockingIOError):
                while self._unsent:
                    sent = self.peer.send(self._unsent[0])
                    self._unsent_bytes -= sent
                    self._last_active = time.monotonic()
                    if sent < len(self._unsent[0]):
                        self._unsent[0] = self._unsent[0][sent:]
                    else:
                        self._unsent.popleft()
            return unsent_before >= MAX_UNREAD_BYTES > self._unsent_bytes

    def close(self) -> None:
        """Close the socket; later messages are discarded."""
        with self._lock:
            self._discards_messages = True
            self._unsent.clear()
            self._unsent_bytes = 0
        self.peer.close()


class Server:
    """The connections of all clients, and the loop that serves them.

    Args:
        hello: first message to each client.
        scheduler: searches for the clients' requests in another thread.
    """

    def __init__(self, hello: Hello, scheduler: Scheduler, settings: ServerSettings) -> None:
        self._hello, self._scheduler, self._settings = hello, scheduler, settings
        self._greeting = encode_message(hello.message())
        self._selector = selectors.DefaultSelector()
        self._connections: set[ClientConnection] = set()
        self._num_accepted = 0
        self._paused_listener: socket.socket | None = None
        self._stopping = self._aborted = False
        self._connections_to_write: deque[ClientConnection] = deque()
        # other threads wake the loop by writing a byte into one end of a socket pair
        self._waker, self._wakeups = socket.socketpair()
        for end in (self._waker, self._wakeups):
            end.setblocking(False)
        self._selector.register(self._wakeups, _READ, lambda wakeups: wakeups.recv(4096))

    def stop(self) -> None:
        """Stop after the running requests; a second call aborts them.

        May be called from a signal handler or any thread.
        """
        self._aborted, self._stopping = self._stopping, True
        self._wake()

    def abort(self) -> None:
        """Stop without waiting for running requests; may be called from a signal handler or any thread."""
        self._aborted = self._stopping = True
        self._wake()

    def run(self, listener: socket.socket, close_listener: Callable[[], None]) -> None:
        """Serve until `stop` is called, then let the running requests finish.

        Args:
            listener: non-blocking socket that accepts clients.
            close_listener: called when no more clients are accepted.
        """
        self._listen(listener)
        while not self._stopping:
            self._step(self._close_inactive())
        if self._paused_listener is None:
            self._selector.unregister(listener)
        self._paused_listener = None
        close_listener()
        self._drain()

    def _drain(self) -> None:
        """Refuse new requests, and wait for the running ones up to the time limit."""
        deadline = time.monotonic() + self._settings.drain_seconds
        running = sum(connection.scheduled is not None for connection in self._connections)
        logger.info("stopping: no more requests are accepted, %d are running", running)
        for connection in list(self._connections):
            if connection.is_idle:
                self._send_last_error(connection, _stopping_error())
        while self._connections and not self._aborted and (seconds_left := deadline - time.monotonic()) > 0:
            self._step(seconds_left)
            for connection in list(self._connections):
                if connection.is_idle:
                    self._close(connection)
        for connection in list(self._connections):
            logger.warning("%s: aborted, as the server stops", connection.name)
            self._send_last_error(connection, _stopping_error())
            self._close(connection)

    def _close_inactive(self) -> float | None:
        """Close the connections of clients that have long been inactive, while new clients have to wait.

        Returns:
            Seconds until the next connection may be closed; None if clients are accepted.
        """
        if self._paused_listener is None:
            return None
        inactive = {connection: connection.inactive_seconds for connection in self._connections}
        for connection in [c for c, seconds in inactive.items() if seconds >= INACTIVE_SECONDS]:
            logger.info("%s: closed, as it was inactive and others wait", connection.name)
            self._close(connection)
        waiting_times = [
            INACTIVE_SECONDS - seconds for seconds in inactive.values() if seconds < INACTIVE_SECONDS
        ]
        return None if self._paused_listener is None else max(min(waiting_times, default=0.0), 0.1)

    def _step(self, timeout: float | None) -> None:
        """Wait for events, at most for a number of seconds, and handle them."""
        for key, mask in self._selector.select(timeout):
            if isinstance(key.data, ClientConnection):
                self._handle(key.data, mask)
            else:
                key.data(key.fileobj)
        for _ in range(len(self._connections_to_write)):
            self._write(self._connections_to_write.popleft())

    def _handle(self, connection: ClientConnection, mask: int) -> None:
        try:
            if mask & _READ and not connection.is_closing:
                for message in connection.receive():
                    self._handle_message(connection, message)
        except OSError:
            self._close(connection)
        except Exception as error:
            # whatever a client has sent, the server continues for the others
            log_bug(error)
            self._refuse(connection, error)
        else:
            if mask & _WRITE:
                self._write(connection)

    def _handle_message(self, connection: ClientConnection, message: dict[str, Any]) -> None:
        """Schedule a request, or send the error for which it is refused."""
        if connection.scheduled is not None:
            raise InputError("a request before the last one has been answered")
        if self._stopping:
            raise _stopping_error()
        try:
            request = self._parse_request(message)
        except InputError as error:
            logger.info("%s: refused: %s", connection.name, error)
            connection.send(encode_message(error_message(error)))
            return
        connection.scheduled = ScheduledRequest(request, connection)
        self._scheduler.submit(connection.scheduled)

    def _parse_request(self, message: dict[str, Any]) -> SearchRequest:
        request = SearchRequest.parse(message, self._settings.threads)
        for query in request.queries:
            self._hello.check_query_length(query)
        # a larger number would only waste GPU memory
        max_seqs = min(request.settings.max_seqs, self._hello.sequences)
        if max_seqs > MAX_CHUNK_HITS:
            raise InputError(f"max_seqs is {max_seqs:,}: the server takes up to {MAX_CHUNK_HITS:,}")
        return replace(request, settings=replace(request.settings, max_seqs=max_seqs))

    def _refuse(self, connection: ClientConnection, error: Exception) -> None:
        logger.warning("%s: refused: %s", connection.name, describe(error))
        self._send_last_error(connection, error)

    def _send_last_error(self, connection: ClientConnection, error: Exception) -> None:
        """Cancel a client's request, and send an error as the last message on the connection."""
        self._cancel_request(connection)
        connection.send_last(encode_message(error_message(error, last=True)))
        self._write(connection)

    def _write(self, connection: ClientConnection) -> None:
        if connection not in self._connections:
            return
        try:
            if connection.write():
                self._scheduler.notify()
        except OSError:
            self._close(connection)
            return
        if connection.is_closing and not connection.has_unsent_messages:
            self._close(connection)
            return
        # while a client does not read its results, its requests are not read; if it has died, writing fails
        reads_requests = not connection.is_closing and not connection.is_backlogged
        events = (_READ if reads_requests else 0) | (_WRITE if connection.has_unsent_messages else 0)
        self._selector.modify(connection.peer, events, connection)

    def _cancel_request(self, connection: ClientConnection) -> None:
        if (scheduled := connection.scheduled) is not None:
            connection.scheduled = None
            scheduled.is_cancelled = True
            self._scheduler.notify()

    def _close(self, connection: ClientConnection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._selector.unregister(connection.peer)
        self._cancel_request(connection)
        connection.close()
        if self._paused_listener is not None:
            self._listen(self._paused_listener)

    def _listen(self, listener: socket.socket) -> None:
        self._paused_listener = None
        self._selector.register(listener, _READ, self._accept)

    def _pause_listening(self, listener: socket.socket) -> None:
        """Accept no clients until a connection is closed."""
        self._selector.unregister(listener)
        self._paused_listener = listener

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._connections:
                raise
            # usually too many open files: continue when a connection has been closed
            logger.warning("cannot accept a client: %s", error)
            self._pause_listening(listener)
            return
        self._num_accepted += 1
        process, user, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        name = f"client {self._num_accepted} (process {process})"
        connection = ClientConnection(peer, name, user, self._hello.max_request_bytes, self._on_send)
        clients_of_user = sum(other.user == user for other in self._connections)
        self._connections.add(connection)
        self._selector.register(peer, _READ, connection)
        logger.debug("%s: connected", name)
        if user != os.geteuid() and clients_of_user >= MAX_CLIENTS_OF_ANOTHER_USER:
            reason = f"this user has {clients_of_user} connections to the server already"
            self._refuse(connection, ServerError(reason, ExitCode.MISSING))
        else:
            connection.send(self._greeting)
        if len(self._connections) >= MAX_CLIENTS:
            self._pause_listening(listener)

    def _on_send(self, connection: ClientConnection) -> None:
        self._connections_to_write.append(connection)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # its buffer is full, so the loop wakes anyway
            self._waker.send(b"\0")


def _stopping_error() -> ServerError:
    return ServerError("the server is stopping; run this again once it is back", ExitCode.MISSING)
