"""The lifecycle of a server: its socket, the lock on it, and signals."""

import json
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Client, Search, Server, Start

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
QUERIES = f">q1 first\n{UBIQUITIN}\n>q2 β\n{GB1}\n"
TIMEOUT = 120.0


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    (line,) = result.stderr.strip().splitlines()
    return line


def test_ready_server_has_a_private_socket(
    serve: "Start", folder: Path, database: Path, connect: Callable[[Path], "Client"]
) -> None:
    server = serve()
    assert server.lines[-1] == (
        f"ready: {folder / 's.sock'} serves {database}, 401 sequences, 30456 residues, on cpu"
    )
    mode = (folder / "s.sock").lstat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    hello = connect(server.path).hello
    assert (hello["protocol"], hello["sequences"], hello["residues"]) == (1, 401, 30456)
    checksums = {
        n: p["sha256"] for n, p in json.loads((database / "manifest.json").read_text())["parts"].items()
    }
    assert hello["checksums"] == checksums


@pytest.mark.slow
def test_live_socket_is_refused_and_dead_one_replaced(
    serve: "Start", folder: Path, works: Callable[["Server"], bool], refused: "Search"
) -> None:
    first = serve()
    second = refused("s.sock", "no_db")
    assert second.returncode == 3
    assert one_line(second) == (
        f"foldcli: error: s.sock: a server (process {first.process.pid}) already uses this socket"
    )
    assert works(first)
    first.process.kill()
    first.process.wait()
    assert (folder / "s.sock").is_socket()
    third = serve()
    assert works(third)
    assert third.stop() == 0
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


@pytest.mark.slow
def test_only_one_of_two_servers_replaces_a_dead_one(
    serve: "Start", folder: Path, works: Callable[["Server"], bool]
) -> None:
    dead = serve()
    dead.process.kill()
    dead.process.wait()
    both = [serve(wait=False), serve(wait=False)]
    lines = [server.wait_for("s.sock") for server in both]
    assert sorted(line.split(": ")[0] for line in lines) == ["foldcli", "ready"]
    codes = [
        None if line.startswith("ready") else server.process.wait()
        for server, line in zip(both, lines, strict=True)
    ]
    assert sorted(codes, key=str) == [3, None]
    assert works(both[codes.index(None)])


def test_foreign_sockets_and_files_are_not_replaced(database: Path, folder: Path, refused: "Search") -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind("other.sock")
        other.listen()
        taken = refused("other.sock", database)
        assert (taken.returncode, one_line(taken)) == (
            3, "foldcli: error: other.sock: a server already uses this socket"
        )  # fmt: skip
    is_file = refused("queries.fasta", database)
    assert is_file.returncode == 3 and "exists and is not a socket, so it is not replaced" in one_line(
        is_file
    )
    too_long = refused("x" * 108, database)
    assert too_long.returncode == 3 and "108 bytes, and the limit is 107" in one_line(too_long)
    missing_folder = refused("no/s.sock", database)
    assert missing_folder.returncode == 3 and "no/s.sock" in one_line(missing_folder)
    assert (folder / "queries.fasta").read_text() == QUERIES
    assert {path.name for path in folder.iterdir()} == {"queries.fasta", "other.sock"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_running_requests_finish(
    serve: "Start", folder: Path, number: int, connect: Callable[[Path], "Client"]
) -> None:
    server = serve()
    running, idle, half = (connect(server.path) for _ in range(3))
    half.socket.sendall(b"\0\0")
    running.request([UBIQUITIN] * 100)
    assert running.receive()["query"] == 0
    server.process.send_signal(number)
    server.wait_for("stopping: no more requests are accepted, 1 are running")
    with pytest.raises(FileNotFoundError):
        connect(server.path)
    for other in (idle, half):
        assert other.receive()["code"] == 4
        with pytest.raises(EOFError):
            other.receive()
    *hits, end = running.receive_results()
    assert [message["query"] for message in hits] == list(range(1, 100)) and end["type"] == "end"
    assert server.process.wait(TIMEOUT) == 0
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_drain_time_is_limited(serve: "Start", folder: Path, connect: Callable[[Path], "Client"]) -> None:
    server = serve("--drain", "0")
    client = connect(server.path)
    client.request([UBIQUITIN * 20] * 500)
    client.receive()
    assert server.stop() == 0
    *_, last = client.receive_results()
    assert (last["type"], last["code"]) == ("error", 4) and "stopping" in last["reason"]
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_second_signal_aborts_running_requests(serve: "Start", connect: Callable[[Path], "Client"]) -> None:
    server = serve()
    client = connect(server.path)
    client.request([UBIQUITIN * 20] * 2000)
    client.receive()
    server.process.send_signal(signal.SIGINT)
    server.wait_for("stopping")
    assert server.stop(signal.SIGINT) == 0
    assert any("aborted" in line for line in server.lines)


def test_signal_during_startup_ends_the_server(serve: "Start", folder: Path) -> None:
    server = serve(wait=False)
    server.wait_for("loading")
    assert server.stop() == 0
    assert "stopped before it was ready" in server.lines
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}
