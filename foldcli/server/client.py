"""The client of a search server: a searcher whose database and engine are in another process."""

import json
import os
import select
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.errors import ExitCode, ServerError, ServerLost
from foldcli.logs import logger
from foldcli.pipeline.search.protocols import HitSearcher
from foldcli.progress import Progress
from foldcli.server.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Hello,
    MessageDecoder,
    SearchRequest,
    check_message_size,
    encode_message,
    parse_hits,
    query_message,
)
from foldcli.server.socket_file import check_socket_path
from msa.base.atomic import errors_name
from msa.base.errors import InputError, MissingError
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from msa.engines.engine import ProfileCallback

_RECEIVE_BYTES = 1 << 18
# upper bound for the size of a request without its queries
_SETTINGS_BYTES = 1024
# limits of time and size for the server's first message
_HELLO_SECONDS = 60.0
_HELLO_BYTES = 1 << 16
# silence of a server after which a line says so
_SILENT_SECONDS = 60


class RemoteSearcher(HitSearcher):
    """A searcher whose database is in a server.

    Raises:
        InputError: the path is too long for a socket, or the peer is not a foldcli server.
        MissingError: there is no server, or it speaks another protocol.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _connect(path)
        self._decoder = MessageDecoder(_HELLO_BYTES)
        self._messages: list[dict[str, Any]] = []  # received but not yet handled, in reverse order
        self._has_waited = True  # whether waiting has been reported; the first message has a time limit
        self._socket.settimeout(_HELLO_SECONDS)
        try:
            self.hello = self._receive_hello()
        except InputError:
            raise InputError("the peer is not a foldcli server", path) from None
        except TimeoutError:
            raise MissingError(
                f"{path}: no answer within {_HELLO_SECONDS:.0f} s",
                "The server has reached its limit of clients, or is not a foldcli server.",
            ) from None
        self._socket.settimeout(None)
        self._has_waited = False
        self._decoder = MessageDecoder(MAX_MESSAGE_BYTES)

    def _receive_hello(self) -> Hello:
        message = self._receive()
        if message["type"] == "hello" and message.get("protocol") != PROTOCOL:
            raise MissingError(
                f"{self._path}: the server speaks protocol {message.get('protocol')} (foldcli "
                f"{message.get('foldcli')}), this foldcli protocol {PROTOCOL}",
                "Use the same version of foldcli for the server and the search.",
            )
        return Hello.parse(message)

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each part of the database."""
        return self.hello.checksums

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: "ProfileCallback | None" = None,
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        """Yield each query with its hits, in order, as they arrive.

        Args:
            queries: queries.
            settings: search settings; the server chooses the number of threads itself.
            progress: called with (number of targets compared so far, number in total), over all queries.
            on_profile: ignored, since profiles stay in the server; accepted so that signatures match.

        Raises:
            InputError: a query exceeds the server's limits; the hits of earlier queries are yielded before.
            ServerError: the server has refused the request, or failed.
            ServerLost: the server is gone.
        """
        done = 0
        for batch in self._request_batches(queries):
            self._reconnect_if_closed()
            self._send(SearchRequest(batch, settings))
            for query in batch:
                yield query, self._receive_hits(query)
                done += 1
                if progress is not None:
                    targets = self.hello.sequences
                    progress(done * targets, len(queries) * targets)
            self._receive_type("end")

    def _request_batches(self, queries: Sequence[FastaRecord]) -> Iterator[Sequence[FastaRecord]]:
        """Yield batches of queries, each as large as fits into a request."""
        start, size = 0, 0
        limit = self.hello.max_request_bytes
        for index, query in enumerate(queries):
            query_size = len(json.dumps(query_message(query)))
            try:
                check_message_size(query_size + _SETTINGS_BYTES, limit)
                self.hello.check_query_length(query)
            except InputError:
                if index > start:
                    yield queries[start:index]
                raise
            if size + query_size + _SETTINGS_BYTES > limit:
                yield queries[start:index]
                start, size = index, 0
            size += query_size
        if queries:
            yield queries[start:]

    def _reconnect_if_closed(self) -> None:
        """Connect again if the server has closed this connection because it was inactive."""
        try:
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        try:
            reconnected = RemoteSearcher(self._path)
        except MissingError:
            raise self._server_lost_error() from None
        if reconnected.checksums != self.checksums:
            raise ServerLost(f"the server at {self._path} serves another database now", ExitCode.MISSING)
        self._socket.close()
        vars(self).update(vars(reconnected))

    def _send(self, request: SearchRequest) -> None:
        try:
            self._socket.sendall(encode_message(request.message()))
        except ConnectionError:
            # raises the error that the server may have sent before, else ServerLost
            self._receive()
            raise self._server_lost_error() from None

    def _receive_hits(self, query: FastaRecord) -> Hits:
        hits: list[Hit] = []
        has_more = True
        while has_more:
            message = self._receive_type("hits")
            hits += parse_hits(message, query)
            has_more = message["more"]
        return replace(Hits.from_sequence(len(query.sequence), hits), capped=bool(message.get("capped")))

    def _receive_type(self, expected: str) -> dict[str, Any]:
        message = self._receive()
        if message["type"] != expected:
            raise InputError(f"the server sent {message['type']!r} instead of {expected!r}", self._path)
        return message

    def _receive(self) -> dict[str, Any]:
        """Return the next message from the server."""
        while not self._messages:
            if not self._has_waited and not select.select([self._socket], [], [], _SILENT_SECONDS)[0]:
                self._has_waited = True
                logger.info("waiting for the search server, which has been silent for %d s", _SILENT_SECONDS)
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                raise self._server_lost_error()
            self._messages = list(self._decoder.feed(data))[::-1]
        message = self._messages.pop()
        if message["type"] == "error":
            error = ServerLost if message.get("last") else ServerError
            raise error(str(message.get("reason")), _exit_code(message.get("code")))
        return message

    def _server_lost_error(self) -> ServerLost:
        return ServerLost(
            f"the server at {self._path} went away during the search; run this again once it is back",
            ExitCode.MISSING,
        )


def _exit_code(value: Any) -> ExitCode:
    try:
        return ExitCode(value)
    except ValueError:
        return ExitCode.UNEXPECTED


def _connect(path: Path) -> socket.socket:
    check_socket_path(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with errors_name(path):
            connection.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError):
        raise MissingError(
            f"no server at {path}", f"Start one, and wait until it is ready: foldcli serve DB --socket {path}"
        ) from None
    return connection
