"""What a server keeps for a client that does not read."""

import socket
from collections.abc import Iterator

import pytest

from foldcli.server.connection import ENOUGH_UNREAD_BYTES, Connection

MESSAGE = bytes(range(256)) * 4096


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection and its client."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "client", 1000, lambda connection: None)
    yield connection, theirs
    connection.close()
    theirs.close()


def test_there_is_room_until_enough_is_unread_and_again_once_it_is_read(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    count = 0
    while connection.has_room() and count < 100:
        connection.send(MESSAGE)
        connection.write()
        count += 1
    assert ENOUGH_UNREAD_BYTES <= count * len(MESSAGE) < 2 * ENOUGH_UNREAD_BYTES and connection.full
    received = b""
    made_room = []
    while connection.unsent:
        received += client.recv(1 << 20)
        made_room.append(connection.write())
    assert sum(made_room) == 1 and connection.has_room() and connection.idle
    client.setblocking(False)
    while len(received) < count * len(MESSAGE):
        received += client.recv(1 << 20)
    assert received == MESSAGE * count


def test_nothing_is_kept_for_a_client_that_is_gone_or_has_had_the_last_word(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    connection.send_last(b"last")
    connection.send(b"more")
    connection.finish(b"end")
    connection.write()
    assert client.recv(100) == b"last" and connection.closing
    client.close()
    with pytest.raises(OSError):
        list(connection.received())
    connection.close()
    connection.send(MESSAGE)
    assert not connection.unsent and connection.has_room()
