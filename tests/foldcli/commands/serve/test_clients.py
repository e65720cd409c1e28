"""Clients of one server: many, slow, dying, or sending garbage."""

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Client, Server, Start

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
TIMEOUT = 120.0
FOLDCLI = [sys.executable, "-m", "foldcli"]


@pytest.mark.slow
def test_server_survives_dying_clients(
    shared: "Server", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    # clients that die before sending anything, within a length, or within a message
    for data in (b"", b"\0\0", struct.pack(">I", 1000) + b'{"type": '):
        client = connect(shared.path)
        client.socket.sendall(data)
        client.close()
    # clients that die after a request, before or while reading its hits
    for read in (0, 3):
        client = connect(shared.path)
        client.request([UBIQUITIN * 10] * 500)
        for _ in range(read):
            client.receive()
        client.close()
        assert int(shared.wait_for("queries dropped").split()[-3]) > 0
    # a client that closes only its sending half
    client = connect(shared.path)
    client.request([UBIQUITIN * 10] * 500)
    client.socket.shutdown(socket.SHUT_WR)
    shared.wait_for("queries dropped")
    # a killed client
    process = subprocess.Popen(
        [*FOLDCLI, "search", "-", "--server", str(shared.path), "-o", "-"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write("".join(f">q{i}\n{UBIQUITIN * 10}\n" for i in range(500)))
    process.stdin.close()
    assert "q0: 300 hits" in process.stderr.readline()
    process.kill()
    process.wait()
    shared.wait_for("queries dropped")
    assert works(shared)


@pytest.mark.slow
def test_client_that_does_not_read_does_not_block_others(
    shared: "Server",
    connect: Callable[[Path], "Client"],
    works: Callable[["Server"], bool],
    relatives: list[str],
) -> None:
    slow = connect(shared.path)
    sequences = relatives[:300]
    slow.request(sequences, max_seqs=400)
    shared.wait_for("its search waits until more of its results are read")
    assert works(shared) and works(shared)
    messages = slow.receive_results()
    assert [message["query"] for message in messages[:-1]] == list(range(300))
    quick = connect(shared.path)
    quick.request(sequences[250:260], max_seqs=400)
    again = quick.receive_results()
    assert [m["hits"] for m in again[:-1]] == [m["hits"] for m in messages[250:260]]


@pytest.mark.slow
def test_requests_of_a_client_that_does_not_read_are_not_received(
    serve: "Start", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    server = serve()
    client = connect(server.path)
    client.socket.settimeout(2)
    wrong = (struct.pack(">I", 14) + b'{"type": "no"}') * 10_000
    with pytest.raises(TimeoutError):
        for _ in range(100):
            client.socket.sendall(wrong)
    assert works(server)
    client.close()
    assert works(server)


@pytest.mark.slow
def test_one_query_does_not_wait_for_a_large_request(
    serve: "Start", connect: Callable[[Path], "Client"]
) -> None:
    server = serve()
    large, small = connect(server.path), connect(server.path)
    large.request([UBIQUITIN * 5] * 600, max_seqs=5)
    large.receive()
    small.request([GB1])
    assert small.receive_results()[-1]["type"] == "end"
    assert ": 1 queries, 1 hits" in server.wait_for(" queries, ")
    assert large.receive_results()[-1]["type"] == "end"
    assert ": 600 queries, 3000 hits" in server.wait_for(" queries, ")


def test_clients_over_the_limit_wait(
    shared: "Server", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    clients = [connect(shared.path) for _ in range(256)]
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.connect(str(shared.path))
    clients[100].request([GB1])
    assert clients[100].receive_results()[-1]["type"] == "end"
    waiting.setblocking(False)
    with pytest.raises(BlockingIOError):
        waiting.recv(1)
    for client in clients:
        client.close()
    waiting.settimeout(TIMEOUT)
    assert waiting.recv(4)
    waiting.close()
    assert works(shared)


def test_connection_serves_several_requests(shared: "Server", connect: Callable[[Path], "Client"]) -> None:
    client = connect(shared.path)
    for sequence, count in ((GB1, 1), (UBIQUITIN, 300), (GB1, 1)):
        client.request([sequence])
        hits, end = client.receive_results()
        assert len(hits["hits"]) == count and end["seconds"] > 0
    client.request([GB1], gap_open=5)
    assert "no E-value statistics for CONTEXT with gap costs 5/1" in client.receive_results()[-1]["reason"]
    client.request([GB1], evalues=1)
    assert "settings: object contains unknown field evalues" in client.receive_results()[-1]["reason"]
    client.request([GB1])
    assert client.receive_results()[-1]["type"] == "end"


def test_second_request_before_the_first_is_answered_is_refused(
    shared: "Server", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    client = connect(shared.path)
    client.request([UBIQUITIN * 10] * 200)
    client.request([GB1])
    last = client.receive_results()[-1]
    assert last["code"] == 3 and "before the last one has been answered" in last["reason"]
    with pytest.raises(EOFError):
        client.receive()
    assert works(shared)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * 4, "a message of 4,294,967,295 bytes exceeds the limit of 1,048,576"),
        (struct.pack(">I", (1 << 20) + 1) + b"x" * 500_000, "a message of 1,048,577 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "exceeds the limit of 1,048,576"),
        (struct.pack(">I", 100_000) + b"[" * 100_000, "nested too deeply"),
        (struct.pack(">I", 4) + b"null", "not a JSON object with a type"),
        (struct.pack(">I", 2) + b"\xff\xff", "JSON is malformed"),
    ],
)
def test_invalid_message_ends_the_connection_with_the_reason(
    shared: "Server",
    data: bytes,
    reason: str,
    connect: Callable[[Path], "Client"],
    works: Callable[["Server"], bool],
) -> None:
    client = connect(shared.path)
    with contextlib.suppress(BrokenPipeError):
        client.socket.sendall(data)
    message = client.receive()
    assert (message["type"], message["code"]) == ("error", 3) and reason in message["reason"]
    with contextlib.suppress(ConnectionResetError), pytest.raises(EOFError):
        client.receive()
    assert works(shared)


def test_announced_length_takes_no_memory(
    shared: "Server", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    def resident_bytes() -> int:
        pages = Path(f"/proc/{shared.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    assert works(shared)
    before = resident_bytes()
    clients = [connect(shared.path) for _ in range(200)]
    for client in clients:
        client.socket.sendall(struct.pack(">I", 1 << 20) + b'{"type"')
    assert works(shared)
    assert resident_bytes() - before < 50 << 20
    for client in clients:
        client.close()


def test_server_survives_random_damage(
    shared: "Server", connect: Callable[[Path], "Client"], works: Callable[["Server"], bool]
) -> None:
    rng = random.Random(2)
    message = json.dumps(
        {
            "type": "search",
            "protocol": 1,
            "queries": [{"header": "q", "sequence": GB1}],
            "settings": {"evalue": 1},
        }
    ).encode()
    for _ in range(300):
        payload = bytearray(message)
        for _ in range(rng.randint(0, 4)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        data = struct.pack(">I", max(0, len(payload) + rng.choice([0, 0, 0, -1, 1]))) + payload
        if rng.random() < 0.3:
            data = rng.randbytes(rng.randint(1, 200))
        client = connect(shared.path)
        client.socket.sendall(data[: rng.choice([len(data), len(data), rng.randint(1, len(data))])])
        client.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(EOFError, ConnectionResetError):
            while client.receive()["type"] in ("hits", "end", "error"):
                pass
        client.close()
    assert works(shared) and shared.process.poll() is None


def test_queries_over_the_limits_are_refused(shared: "Server", connect: Callable[[Path], "Client"]) -> None:
    client = connect(shared.path)
    client.request([GB1, "MK" * 50_001])
    assert (
        client.receive_results()[-1]["reason"]
        == "query 'q1' has 100,002 residues: the server takes up to 100,000"
    )
    client.request([GB1], max_seqs=2**31 - 1)  # reduced to the number of targets
    assert client.receive_results()[-1]["type"] == "end"
