"""The other end: a searcher whose database and engine are in a server."""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.errors import ExitCode, ServerError, ServerLost
from foldcli.progress import Progress
from foldcli.server.address import check_path
from foldcli.server.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Hello,
    SearchRequest,
    Unframer,
    check_size,
    frame,
    hits_of,
    query_message,
)
from msa.errors import InputError, MissingError
from msa.io.fasta import FastaRecord
from msa.search.hits import Hit
from msa.search.settings import SearchSettings

if TYPE_CHECKING:
    from msa.search.engine import ProfileCallback

_READ_BYTES = 1 << 18
_SETTINGS_BYTES = 1024
"""Of a request without its queries, at most."""

_GREETING_SECONDS = 60.0
_GREETING_BYTES = 1 << 16


class RemoteSearcher:
    """A server's database; see foldcli.pipeline.searcher.Searcher.

    Args:
        path: socket of the server.

    Raises:
        InputError: the path is too long for a socket, or what answers is no server of ours.
        MissingError: no server is there, or it speaks another protocol.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _connected(path)
        self._unframer = Unframer(_GREETING_BYTES)
        self._arrived: list[dict[str, Any]] = []
        self._socket.settimeout(_GREETING_SECONDS)
        try:
            self.hello = self._greeting()
        except InputError:
            raise InputError("what answers is no foldcli server", path) from None
        except TimeoutError:
            raise MissingError(
                f"{path}: no answer within {_GREETING_SECONDS:.0f} s",
                "The server has all the clients that it takes, or is none of foldcli's.",
            ) from None
        self._socket.settimeout(None)
        self._unframer = Unframer(MAX_MESSAGE_BYTES)

    def _greeting(self) -> Hello:
        greeting = self._next()
        if greeting["type"] == "hello" and greeting.get("protocol") != PROTOCOL:
            raise MissingError(
                f"{self._path}: the server speaks protocol {greeting.get('protocol')} (foldcli "
                f"{greeting.get('foldcli')}), this foldcli protocol {PROTOCOL}",
                "Start the server with the foldcli that searches.",
            )
        return Hello.of(greeting)

    @property
    def checksums(self) -> dict[str, str]:
        return self.hello.checksums

    def search_many(
        self,
        queries: Sequence[FastaRecord],
        settings: SearchSettings,
        progress: Progress | None = None,
        on_profile: "ProfileCallback | None" = None,
    ) -> Iterator[tuple[FastaRecord, list[Hit]]]:
        """Each query with its hits, in order, as they arrive; what was searched with stays in the server.

        Raises:
            InputError: a query is more than the server takes; those before it have been searched with.
            ServerError: the server has refused the request, or failed in it.
            ServerLost: the server is gone.
        """
        done = 0
        for part in self._parts(queries):
            self._ask(SearchRequest(part, settings))
            for query in part:
                yield query, self._hits(query)
                done += 1
                if progress is not None:
                    targets = self.hello.sequences
                    progress(done * targets, len(queries) * targets)
            self._expect("end")

    def _parts(self, queries: Sequence[FastaRecord]) -> Iterator[Sequence[FastaRecord]]:
        """As many queries at a time as fit into a request.

        Raises:
            InputError: when a query's turn has come that does not fit into any.
        """
        first, size = 0, 0
        limit = self.hello.max_request_bytes
        for place, query in enumerate(queries):
            own = len(json.dumps(query_message(query)))
            try:
                check_size(own + _SETTINGS_BYTES, limit)
                self.hello.check_length(query)
            except InputError:
                if place > first:
                    yield queries[first:place]
                raise
            if size + own + _SETTINGS_BYTES > limit:
                yield queries[first:place]
                first, size = place, 0
            size += own
        if queries:
            yield queries[first:]

    def _ask(self, request: SearchRequest) -> None:
        try:
            self._socket.sendall(frame(request.message()))
        except ConnectionError:
            # it may have said why; if not, reading finds out that it is gone
            self._next()
            raise self._lost() from None

    def _hits(self, query: FastaRecord) -> list[Hit]:
        hits: list[Hit] = []
        more = True
        while more:
            message = self._expect("hits")
            hits += hits_of(message, query)
            more = message["more"]
        return hits

    def _expect(self, kind: str) -> dict[str, Any]:
        message = self._next()
        if message["type"] != kind:
            raise InputError(f"the server sent {message['type']!r} where {kind!r} was due", self._path)
        return message

    def _next(self) -> dict[str, Any]:
        """The next message, unless it is an error.

        Raises:
            ServerError: it is one.
            ServerLost: there is no more.
        """
        while not self._arrived:
            try:
                data = self._socket.recv(_READ_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                raise self._lost()
            self._arrived = list(self._unframer.feed(data))[::-1]
        message = self._arrived.pop()
        if message["type"] == "error":
            kind = ServerLost if message.get("last") else ServerError
            raise kind(str(message.get("reason")), _exit_code(message.get("code")))
        return message

    def _lost(self) -> ServerLost:
        return ServerLost(
            f"the server at {self._path} went away during the search; run this again once it is back",
            ExitCode.MISSING,
        )


def _exit_code(value: Any) -> ExitCode:
    try:
        return ExitCode(value)
    except ValueError:
        return ExitCode.UNEXPECTED


def _connected(path: Path) -> socket.socket:
    check_path(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError):
        raise MissingError(
            f"no server at {path}", f"Start one, and wait until it is ready: foldcli serve DB --socket {path}"
        ) from None
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    return connection
