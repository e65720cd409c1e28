"""The other end: a searcher whose database and engine are in a server."""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
)
from msa.errors import InputError, MissingError
from msa.fasta import FastaRecord
from msa.hits import Hit
from msa.search_settings import SearchSettings

_READ_BYTES = 1 << 18
_GREETING_SECONDS = 60.0


class RemoteSearcher:
    """A server's database; see foldcli.searcher.Searcher.

    Args:
        path: socket of the server.

    Raises:
        InputError: the path is too long for a socket, or what answers is no server of ours.
        MissingError: no server is there, or it speaks another protocol.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _connected(path)
        self._unframer = Unframer(MAX_MESSAGE_BYTES)
        self._arrived: list[dict[str, Any]] = []
        self._socket.settimeout(_GREETING_SECONDS)
        try:
            greeting = self._next()
        except TimeoutError:
            raise MissingError(
                f"{path}: no answer within {_GREETING_SECONDS:.0f} s",
                "The server has all the clients that it takes, or is none of foldcli's.",
            ) from None
        self._socket.settimeout(None)
        if greeting.get("protocol") != PROTOCOL and greeting["type"] == "hello":
            raise MissingError(
                f"{path}: the server speaks protocol {greeting.get('protocol')} (foldcli "
                f"{greeting.get('foldcli')}), this foldcli protocol {PROTOCOL}",
                "Start the server with the foldcli that searches.",
            )
        self.hello = Hello.of(greeting)
        self.seconds = 0.0

    @property
    def checksums(self) -> dict[str, str]:
        return self.hello.checksums

    def search_many(
        self, queries: Sequence[FastaRecord], settings: SearchSettings, progress: Progress | None = None
    ) -> Iterator[tuple[FastaRecord, list[Hit]]]:
        """Each query with its hits; `seconds` counts what the server says it has searched for.

        Raises:
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
            self.seconds += self._expect("end")["seconds"]

    def _parts(self, queries: Sequence[FastaRecord]) -> Iterator[Sequence[FastaRecord]]:
        """As many queries at a time as fit into a request, at least one."""
        first, size = 0, 0
        room = self.hello.max_request_bytes - 1024
        for place, query in enumerate(queries):
            own = len(json.dumps(asdict(query)))
            if place > first and size + own > room:
                yield queries[first:place]
                first, size = place, 0
            size += own
        if queries:
            yield queries[first:]

    def _ask(self, request: SearchRequest) -> None:
        message = frame(request.message())
        check_size(len(message) - 4, self.hello.max_request_bytes)
        try:
            self._socket.sendall(message)
        except ConnectionError:
            # it may have said why; if not, reading finds out that it is gone
            self._next()
            raise ServerLost(self._path) from None

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
                raise ServerLost(self._path)
            self._arrived = list(self._unframer.feed(data))[::-1]
        message = self._arrived.pop()
        if message["type"] == "error":
            raise ServerError(str(message.get("reason")), _exit_code(message.get("code")))
        return message


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
