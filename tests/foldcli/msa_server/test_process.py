"""The process `foldcli serve --http`: its address, signals, kill -9, and clients that disappear."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from foldcli.msa_server.service import read_secrets
from msa.base.hardware import has_nvidia_hardware
from tests.command_process import run_foldcli
from tests.foldcli.exports.conftest import UBIQUITIN
from tests.foldcli.msa_server.conftest import TIMEOUT, Client


class Process:
    """A server process."""

    def __init__(self, databases: Sequence[Path], *arguments: object) -> None:
        command = [sys.executable, "-m", "foldcli", "serve", *databases, "--device", "cpu", *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.search(r"ready: (\S+)", line):
                self.client = Client(match[1])
                self._reader = threading.Thread(
                    target=self.lines.extend, args=(self.process.stderr,), daemon=True
                )
                self._reader.start()
                return
        raise AssertionError(f"the server did not start: {self.lines}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return code


@pytest.fixture
def serve(
    databases: Sequence[Path], server_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Process]]:
    monkeypatch.setenv("FOLDCLI_CACHE", str(server_cache))
    started: list[Process] = []

    def start(*arguments: object) -> Process:
        started.append(Process(databases, "--http", "127.0.0.1:0", "--queue", tmp_path / "queue", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.slow
def test_killed_server_continues_and_clients_may_disappear(
    serve: Callable[..., Process], databases: Sequence[Path], tmp_path: Path
) -> None:
    first = serve()
    queue = tmp_path / "queue"
    second = run_foldcli(["serve", databases[0], "--http", "127.0.0.1:0", "--queue", queue])
    assert second.returncode == 3 and "another server uses this queue" in second.stderr
    port = int(first.client.url.rpartition(":")[2])
    third = run_foldcli(["serve", databases[0], "--http", f"127.0.0.1:{port}"])
    assert third.returncode == 3 and third.stderr.endswith(
        f"--http 127.0.0.1:{port}: address already in use\n"
    )
    for data in (b"", b"POST /ticket/msa HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nq=", b"\0\xff\n\n"):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(data)
    queries = [f">1\n{UBIQUITIN[number:]}\n" for number in range(30)]
    tickets = [first.client.submit(query)[1]["id"] for query in queries]
    first.end(signal.SIGKILL)
    assert not any("Traceback" in line for line in first.lines)
    again = serve()
    assert all(again.client.wait(ticket) == "COMPLETE" for ticket in tickets)
    assert again.end(signal.SIGTERM) == 0 and again.lines[-1] == "stopped\n"


@pytest.mark.slow
def test_all_messages_are_json_and_unfinished_requests_end_without_traceback(
    serve: Callable[..., Process],
) -> None:
    server = serve("--log-json", "--drain", "0")
    port = int(server.client.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as invalid:
        invalid.sendall(b"\0\n\n")
        assert b" 400 " in invalid.recv(99)
    with socket.create_connection(("127.0.0.1", port)) as unfinished:
        unfinished.sendall(b"POST /ticket/msa HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nq=")
        time.sleep(0.5)
        assert server.end(signal.SIGTERM) == 0
    messages = [json.loads(line)["message"] for line in server.lines]
    assert "a request of 127.0.0.1 was dropped, as the server stops" in messages
    assert "Invalid HTTP request received." in messages and "Traceback" not in str(messages)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["db"], 2, "Give either --socket or --http."),
        (["db", "--socket", "s", "--http", "127.0.0.1:0"], 2, "Give either --socket or --http."),
        (["db", "--http", "8080"], 2, "expected HOST:PORT or [IPV6]:PORT, got '8080'"),
        (["db", "--http", "127.0.0.1:99999"], 2, "expected HOST:PORT"),
        (["db", "other", "--socket", "s"], 2, "--socket takes one database."),
        (["db", "--socket", "s", "--max-waiting", "3"], 2, "--max-waiting is for --http."),
        (["db", "db", "--http", "127.0.0.1:0"], 2, "db is given twice."),
        (["db", "--http", "127.0.0.1:0", "--auth", "users"], 3, "users:2: expected name:secret"),
        (["db", "--http", "127.0.0.1:0", "--auth", "twice"], 3, "twice:2: 'ada' has a line already"),
        (["db", "--http", "127.0.0.1:0", "--auth", "latin"], 3, "latin:1: not UTF-8"),
        (["db", "--http", f"{'é' * 80}:0"], 2, "expected HOST:PORT"),
        (["db", "--http", "[::1:80"], 2, "expected HOST:PORT or [IPV6]:PORT, got '[::1:80'"),
        (["db", "--http", "::1]:80"], 2, "got '::1]:80'"),
        (["db", "--http", "::1:80"], 2, "got '::1:80'"),
        (
            ["db", "--http", "[localhost]:80"],
            2,
            "expected an IPv6 address in the brackets of '[localhost]:80'",
        ),
        (["db", "--http", "[::1]:0"], 4, "db: no such"),
        (["db", "--http", "127.0.0.1:0"], 4, "db: no such"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "users").write_text("# users\nada\n")
    (tmp_path / "twice").write_text("ada: s\nada:t\n")
    (tmp_path / "latin").write_bytes("ada:é".encode("latin-1"))
    result = run_foldcli(["serve", *arguments, "--device", "cpu"])
    assert result.returncode == code and message in result.stderr, result.stderr


def test_secrets_have_no_spaces_around_them(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# users\r\nada: s:1 \r\n\nbob:t2")
    assert read_secrets(tmp_path / "users") == {"ada": "s:1", "bob": "t2"}


@pytest.mark.skipif(has_nvidia_hardware(), reason="has a GPU")
def test_missing_gpu_is_found_before_the_database_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "db.fasta").write_text(f">a\n{UBIQUITIN}\n")
    result = run_foldcli(["serve", tmp_path / "db.fasta", "--http", "127.0.0.1:0", "--device", "cuda"])
    assert result.returncode == 4 and "this machine has no NVIDIA GPU\n" in result.stderr
    assert not (tmp_path / "cache" / "databases").exists()
