"""The server's event loop: accept clients, read requests, and write results as clients read them.

One thread does all this and never waits for a single client; a second thread searches. Other clients are
therefore not affected by a client that does not read, sends half a message or garbage, or dies.
"""

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

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

_POLL_SECONDS = 0.05
_PEER = struct.Struct("3i")  # ids of process, user and group


class ClientConnection(asyncio.Protocol):
    """A connected client with its current request.

    The search thread calls `accepts_results`, `send` and `finish`; everything else runs in the server's loop.

    Attributes:
        scheduled: the current request, until its results are complete.
    """

    def __init__(self, server: "Server", name: str, user: int) -> None:
        self.name, self.user, self._server = name, user, server
        self.scheduled: ScheduledRequest | None = None
        self._decoder = MessageDecoder(server.hello.max_request_bytes)
        self._is_backlogged = False
        self._unread_bytes, self._last_active = 0, time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client, or refuse it."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(MAX_UNREAD_BYTES, MAX_UNREAD_BYTES - 1)
        logger.debug("%s: connected", self.name)
        try:
            self._server.add(self)
        except ServerError as error:
            self._refuse(error)
        else:
            self._write(encode_message(self._server.hello.message()))

    def data_received(self, data: bytes) -> None:
        """Handle the messages that are now complete."""
        try:
            for message in self._decoder.feed(data):
                self._last_active = time.monotonic()
                self._handle(message)
        except Exception as error:
            # whatever a client has sent, the server continues for the others
            log_bug(error)
            self._refuse(error)

    def _handle(self, message: dict[str, Any]) -> None:
        """Schedule a request, or send the error for which it is refused."""
        if self.scheduled is not None:
            raise InputError("a request before the last one has been answered")
        try:
            request = self._server.parse_request(message)
        except InputError as error:
            logger.info("%s: refused: %s", self.name, error)
            self._write(encode_message(error_message(error)))
            return
        self.scheduled = ScheduledRequest(request, self)
        self._server.scheduler.submit(self.scheduled)

    def _refuse(self, error: Exception) -> None:
        logger.warning("%s: refused: %s", self.name, describe(error))
        self.close_with(error)

    def close_with(self, error: Exception) -> None:
        """Cancel the request, and close the connection once the client has read this error."""
        self._cancel_request()
        self._write(encode_message(error_message(error, last=True)))
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def eof_received(self) -> None:
        """Drop the request of a client that has closed its sending half."""
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the request of a client that is gone."""
        self._cancel_request()
        self._server.remove(self)

    def _cancel_request(self) -> None:
        if self.scheduled is not None:
            self.scheduled.is_cancelled = True
            self.scheduled = None
            self._server.scheduler.notify()

    def pause_writing(self) -> None:
        """Pause the search of a client that does not read its results, and do not read its requests."""
        self._is_backlogged = True
        self._transport.pause_reading()
        logger.debug("%s: its search waits until more of its results are read", self.name)

    def resume_writing(self) -> None:
        """Continue the search of a client that has read its results."""
        self._is_backlogged = False
        self._transport.resume_reading()
        self._server.scheduler.notify()

    def accepts_results(self) -> bool:
        """Return True unless too many results are unread."""
        return not self._is_backlogged

    def send(self, message: bytes) -> None:
        """Queue a message; nothing happens after the end of the connection."""
        self._server.call(self._write, message)

    def finish(self, message: bytes) -> None:
        """Queue the last message of the current request."""
        self._server.call(self._finish, message)

    def _finish(self, message: bytes) -> None:
        self.scheduled, self._last_active = None, time.monotonic()
        self._write(message)
        if self._server.is_stopping:
            self._transport.close()

    def _write(self, message: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(message)

    def inactive_seconds(self) -> float:
        """Return the time since the client's last request, or since a call found that it has read something.

        The time is 0 while its request runs and it has read all results.
        """
        unread = self._transport.get_write_buffer_size()
        if unread != self._unread_bytes or (self.scheduled is not None and not unread):
            self._unread_bytes, self._last_active = unread, time.monotonic()
        return time.monotonic() - self._last_active


class Server:
    """The connections of all clients, and the loop that serves them.

    Args:
        hello: first message to each client.
        scheduler: searches for the clients' requests in another thread.
        threads: number of CPU threads of a search.
        drain_seconds: time limit for running requests to finish when the server stops.
    """

    def __init__(self, hello: Hello, scheduler: Scheduler, threads: int, drain_seconds: float) -> None:
        self.hello, self.scheduler = hello, scheduler
        self._threads, self._drain_seconds = threads, drain_seconds
        self._loop = asyncio.new_event_loop()
        self._connections: set[ClientConnection] = set()
        self._stopping, self._aborted = asyncio.Event(), False

    @property
    def is_stopping(self) -> bool:
        """True once no more requests are accepted."""
        return self._stopping.is_set()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the loop; may be called from a signal handler or any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Stop after the running requests; a second call aborts them. See `call`."""
        self.call(self._stop)

    def abort(self) -> None:
        """Stop without waiting for running requests. See `call`."""
        self.stop()
        self.stop()

    def _stop(self) -> None:
        self._aborted = self.is_stopping
        self._stopping.set()

    def run(self, listener: socket.socket, close_listener: Callable[[], None]) -> None:
        """Serve until `stop` is called, then let the running requests finish.

        Args:
            listener: non-blocking socket that accepts clients.
            close_listener: called when no more clients are accepted.
        """
        try:
            self._loop.run_until_complete(self._serve(listener, close_listener))
        finally:
            self._loop.close()

    async def _serve(self, listener: socket.socket, close_listener: Callable[[], None]) -> None:
        tasks = [asyncio.create_task(each) for each in (self._accept(listener), self._stopping.wait())]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        try:
            for task in done:
                task.result()  # raises the error
        finally:
            close_listener()
            await self._drain()

    async def _accept(self, listener: socket.socket) -> None:
        """Accept clients while there is room."""
        num_accepted = 0
        while True:
            await self._make_room(MAX_CLIENTS)
            try:
                peer, _ = await self._loop.sock_accept(listener)
            except OSError as error:
                if not self._connections:
                    raise
                # usually too many open files: continue when a connection has been closed
                logger.warning("cannot accept a client: %s", error)
                await self._make_room(len(self._connections))
                continue
            num_accepted += 1
            try:
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                process, user, _ = _PEER.unpack(credentials)
                name = f"client {num_accepted} (process {process})"
                await self._loop.connect_accepted_socket(partial(ClientConnection, self, name, user), peer)
            except OSError as error:
                logger.warning("client %d: no connection: %s", num_accepted, error)
                peer.close()

    async def _make_room(self, limit: int) -> None:
        """Wait until there are fewer clients than the limit; close the connections of inactive ones."""
        while len(self._connections) >= limit:
            for connection in self._connections:
                if connection.inactive_seconds() >= INACTIVE_SECONDS:
                    logger.info("%s: closed, as it was inactive and others wait", connection.name)
                    connection.abort()
            await asyncio.sleep(_POLL_SECONDS)

    async def _drain(self) -> None:
        """Refuse new requests, and wait for the running ones up to the time limit."""
        deadline = time.monotonic() + self._drain_seconds
        running = sum(connection.scheduled is not None for connection in self._connections)
        logger.info("stopping: no more requests are accepted, %d are running", running)
        for connection in self._connections:
            if connection.scheduled is None:
                connection.close_with(_stopping_error())
        while self._connections and not self._aborted and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        for connection in self._connections:
            logger.warning("%s: aborted, as the server stops", connection.name)
            connection.close_with(_stopping_error())
            connection.abort()
        await asyncio.sleep(0)  # closes the connections

    def add(self, connection: ClientConnection) -> None:
        """Add a connected client.

        Raises:
            ServerError: its user has too many connections; it is added all the same until it is closed.
        """
        clients_of_user = sum(other.user == connection.user for other in self._connections)
        self._connections.add(connection)
        if connection.user != os.geteuid() and clients_of_user >= MAX_CLIENTS_OF_ANOTHER_USER:
            reason = f"this user has {clients_of_user} connections to the server already"
            raise ServerError(reason, ExitCode.MISSING)

    def remove(self, connection: ClientConnection) -> None:
        """Remove a client whose connection is closed."""
        self._connections.discard(connection)

    def parse_request(self, message: dict[str, Any]) -> SearchRequest:
        """Return the request in a message.

        Raises:
            InputError: it is invalid, or exceeds the limits.
            ServerError: the server is stopping.
        """
        if self.is_stopping:
            raise _stopping_error()
        request = SearchRequest.parse(message, self._threads)
        for query in request.queries:
            self.hello.check_query_length(query)
        # a larger number would only waste GPU memory
        max_seqs = min(request.settings.max_seqs, self.hello.sequences)
        if max_seqs > MAX_CHUNK_HITS:
            raise InputError(f"max_seqs is {max_seqs:,}: the server takes up to {MAX_CHUNK_HITS:,}")
        return replace(request, settings=replace(request.settings, max_seqs=max_seqs))


def _stopping_error() -> ServerError:
    return ServerError("the server is stopping; run this again once it is back", ExitCode.MISSING)
