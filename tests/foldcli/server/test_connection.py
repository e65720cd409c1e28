"""Buffering of results for a client that does not read them."""

import socket
from collections.abc import Iterator

import pytest

from foldcli.server.server import MAX_UNREAD_BYTES, ClientConnection

MESSAGE = bytes(range(256)) * 4096


@pytest.fixture
def sockets() -> Iterator[tuple[ClientConnection, socket.socket]]:
    """Yield a connection and the socket of its client."""
    server_end, client_end = socket.socketpair()
    connection = ClientConnection(server_end, "client", 0, 1000, lambda connection: None)
    yield connection, client_end
    connection.close()
    client_end.close()


def test_results_are_accepted_until_too_many_are_unread(
    sockets: tuple[ClientConnection, socket.socket],
) -> None:
    connection, client = sockets
    count = 0
    while connection.accepts_results() and count < 100:
        connection.send(MESSAGE)
        connection.write()
        count += 1
    assert MAX_UNREAD_BYTES <= count * len(MESSAGE) < 2 * MAX_UNREAD_BYTES and connection.is_backlogged
    received = b""
    resumed = []
    while connection.has_unsent_messages:
        received += client.recv(1 << 20)
        resumed.append(connection.write())
    assert sum(resumed) == 1 and connection.accepts_results() and connection.is_idle
    client.setblocking(False)
    while len(received) < count * len(MESSAGE):
        received += client.recv(1 << 20)
    assert received == MESSAGE * count


def test_messages_after_the_last_one_or_after_closing_are_discarded(
    sockets: tuple[ClientConnection, socket.socket],
) -> None:
    connection, client = sockets
    connection.send_last(b"last")
    connection.send(b"more")
    connection.finish(b"end")
    connection.write()
    assert client.recv(100) == b"last" and connection.is_closing
    client.close()
    with pytest.raises(OSError):
        list(connection.receive())
    connection.close()
    connection.send(MESSAGE)
    assert not connection.has_unsent_messages and connection.accepts_results()
