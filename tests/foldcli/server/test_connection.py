"""Buffering of results for a client that does not read them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from foldcli.errors import ExitCode, ServerError
from foldcli.server.protocol import Hello
from foldcli.server.scheduler import Scheduler
from foldcli.server.server import MAX_UNREAD_BYTES, ClientConnection, Server

MESSAGE = bytes(range(256)) * 4096
Scenario = Callable[[ClientConnection, socket.socket, Callable[[int], Awaitable[bytes]]], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Run a scenario with a connection, the socket of its client, and a function that reads from it."""
    hello = Hello("db", 1, 3, {"residues.u8": "0"}, "cpu", 1000, 1000)
    server = Server(hello, Scheduler(lambda *_: iter(()), lambda: None), 1, 5.0)
    loop = server._loop

    async def connect() -> None:
        server_end, client_end = socket.socketpair()
        client_end.setblocking(False)

        async def receive(size: int) -> bytes:
            async with asyncio.timeout(30):
                return await loop.sock_recv(client_end, size)

        connection = ClientConnection(server, "client", 0)
        await loop.connect_accepted_socket(lambda: connection, server_end)
        assert b'"type":"hello"' in await receive(1000)
        await scenario(connection, client_end, receive)
        client_end.close()

    loop.run_until_complete(connect())
    loop.close()


def test_results_are_accepted_until_too_many_are_unread() -> None:
    async def scenario(connection: ClientConnection, client: socket.socket, receive: Callable) -> None:
        count = 0
        while connection.accepts_results() and count < 100:
            connection.send(MESSAGE)
            await asyncio.sleep(0.001)
            count += 1
        assert MAX_UNREAD_BYTES <= count * len(MESSAGE) < 2 * MAX_UNREAD_BYTES
        received = b""
        resumed = [False]
        while len(received) < count * len(MESSAGE):
            received += await receive(1 << 20)
            resumed.append(connection.accepts_results())
        assert resumed == sorted(resumed) and resumed[-1]
        assert received == MESSAGE * count

    run(scenario)


def test_messages_after_the_last_one_or_after_closing_are_discarded() -> None:
    async def scenario(connection: ClientConnection, client: socket.socket, receive: Callable) -> None:
        # more than fits into the socket, so that the last message waits
        connection.send(MESSAGE * 4)
        await asyncio.sleep(0.01)
        connection.close_with(ServerError("last", ExitCode.MISSING))
        connection.send(b"more")
        connection.finish(b"end")
        received = b""
        while block := await receive(1 << 20):
            received += block
        assert received.startswith(MESSAGE * 4) and received.endswith(b'"reason":"last","last":true}')
        connection.send(MESSAGE)
        await asyncio.sleep(0.01)
        assert connection.accepts_results()

    run(scenario)
