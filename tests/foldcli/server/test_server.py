"""The event loop of a server: connections that take the places of others."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

import pytest

from foldcli.errors import ServerLost
from foldcli.server import server as server_module
from foldcli.server.client import RemoteSearcher
from foldcli.server.protocol import Hello
from foldcli.server.scheduler import HitStream, Scheduler
from foldcli.server.server import Server
from foldcli.server.socket_file import open_listener
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord

QUERY = FastaRecord("q", "MKV")


def _search(queries: Sequence[FastaRecord], settings: SearchSettings) -> HitStream:
    for query in queries:
        yield query, Hits.from_sequence(len(query.sequence), [])


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Run a server without hits in this process, and yield the path of its socket."""
    path = tmp_path / "s.sock"
    scheduler = Scheduler(_search, lambda: None)
    hello = Hello("db", 1, 3, {"residues.u8": "0"}, "cpu", 1 << 20, 1000)
    server = Server(hello, scheduler, 1, 5.0)
    listener = open_listener(path)
    threads = [Thread(target=scheduler.run), Thread(target=server.run, args=(listener, listener.close))]
    for thread in threads:
        thread.start()
    yield path
    server.abort()
    scheduler.stop()
    for thread in threads:
        thread.join()


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(str(path))
    return connection


def test_inactive_connections_make_room_for_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CLIENTS", 3)
    monkeypatch.setattr(server_module, "INACTIVE_SECONDS", 0.3)
    searcher = RemoteSearcher(path)
    assert len(list(searcher.search_many([QUERY], SearchSettings()))) == 1
    # one that connects only, and one that sends half a message
    idle = [_connect(path), _connect(path)]
    for connection in idle:
        assert connection.recv(4)
    idle[1].sendall(b"\0\0\0\5{")
    assert len(list(RemoteSearcher(path).search_many([QUERY], SearchSettings()))) == 1
    # the first client was inactive too; it connects again
    assert len(list(searcher.search_many([QUERY], SearchSettings()))) == 1
    for connection in idle:
        connection.close()


def test_idle_connection_is_kept_while_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "INACTIVE_SECONDS", 0.0)
    searcher = RemoteSearcher(path)
    for _ in range(3):
        assert len(list(RemoteSearcher(path).search_many([QUERY], SearchSettings()))) == 1
    with pytest.raises(BlockingIOError):
        searcher._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)


def test_clients_of_another_user_are_limited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CLIENTS_OF_ANOTHER_USER", 1)
    user = server_module.os.geteuid()
    monkeypatch.setattr(server_module.os, "geteuid", lambda: user + 1)
    first = RemoteSearcher(path)
    with pytest.raises(ServerLost, match="this user has 1 connections to the server already"):
        RemoteSearcher(path)
    assert len(list(first.search_many([QUERY], SearchSettings()))) == 1
