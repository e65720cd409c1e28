"""Fixtures: a database, server processes, and a client that speaks the protocol itself."""

import json
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_process import run_foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
QUERIES = f">q1 first\n{UBIQUITIN}\n>q2 β\n{GB1}\n"
TIMEOUT = 120.0

Start = Callable[..., "Server"]
Search = Callable[..., "subprocess.CompletedProcess[str]"]


class Server:
    """A `foldcli serve` process, with a queue of its lines on stderr."""

    def __init__(self, database: Path, path: Path, *arguments: str) -> None:
        self.path = path
        command = [*FOLDCLI, "serve", str(database), "--socket", str(path), "--device", "cpu", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, text: str) -> str:
        """Wait for a line that contains `text`, and return it."""
        while (line := self._queue.get(timeout=TIMEOUT)) is not None:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"the server ended without the line {text!r}: {self.lines}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code; `lines` then has all lines."""
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        while (line := self._queue.get(timeout=TIMEOUT)) is not None:
            self.lines.append(line)
        return code


class Client:
    """A client that implements the protocol independently of foldcli, and can misbehave."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(str(path))
        self.hello = self.receive()

    def send(self, message: Any) -> None:
        payload = json.dumps(message).encode()
        self.socket.sendall(struct.pack(">I", len(payload)) + payload)

    def request(self, sequences: Sequence[str], **settings: Any) -> None:
        queries = [{"header": f"q{i}", "sequence": sequence} for i, sequence in enumerate(sequences)]
        self.send({"type": "search", "protocol": 1, "queries": queries, "settings": settings})

    def receive(self) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self._exactly(4))
        message = json.loads(self._exactly(length))
        assert isinstance(message, dict)
        return message

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            block = self.socket.recv(min(count - len(data), 1 << 20))
            if not block:
                raise EOFError
            data += block
        return data

    def receive_results(self) -> list[dict[str, Any]]:
        """Return the messages up to the first of another type than hits."""
        messages = [self.receive()]
        while messages[-1]["type"] == "hits":
            messages.append(self.receive())
        return messages

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="session")
def relatives() -> list[str]:
    """Return 400 relatives of ubiquitin, with 5 to 40 residues changed."""
    rng = random.Random(1)
    sequences = []
    for _ in range(400):
        letters = list(UBIQUITIN)
        for position in rng.sample(range(len(letters)), rng.randint(5, 40)):
            letters[position] = rng.choice("ACDEFGHIKLMNPQRSTVWY")
        sequences.append("".join(letters))
    return sequences


@pytest.fixture(scope="session")
def database(relatives: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a database of 400 relatives of ubiquitin and one protein G."""
    folder = tmp_path_factory.mktemp("database")
    records = [f">m{i} mutant {i} ü\n{sequence}\n" for i, sequence in enumerate(relatives)]
    (folder / "db.fasta").write_text("".join(records) + f">gb1\n{GB1}\n")
    command = [*FOLDCLI, "createdb", str(folder / "db.fasta"), "-o", str(folder / "db"), "-q"]
    assert subprocess.run(command).returncode == 0
    return folder / "db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a temporary folder with queries.fasta, and return it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "queries.fasta").write_text(QUERIES)
    return tmp_path


@pytest.fixture
def serve(database: Path, folder: Path) -> Iterator[Start]:
    """Return a function that starts a server at s.sock, and by default waits until it is ready."""
    started: list[Server] = []

    def start(*arguments: str, wait: bool = True) -> Server:
        server = Server(database, folder / "s.sock", *arguments)
        started.append(server)
        if wait:
            server.wait_for("ready: ")
        return server

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def shared(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start one server for all tests that do not stop or disturb it."""
    server = Server(database, tmp_path_factory.mktemp("shared") / "s.sock", "-v", "--max-request", "1")
    server.wait_for("ready: ")
    yield server
    code = server.stop()
    assert code == 0 and "Traceback" not in "\n".join(server.lines)


@pytest.fixture
def connect() -> Callable[[Path], Client]:
    """Return a function that connects to a server's socket."""
    return Client


@pytest.fixture
def search() -> Search:
    """Return a function that runs `foldcli search`."""

    def run(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return run_foldcli(["search", *arguments], input=stdin)

    return run


@pytest.fixture
def refused() -> Search:
    """Return a function that runs a server that is expected to refuse to start."""

    def run(path: str, database: object) -> subprocess.CompletedProcess[str]:
        command = [*FOLDCLI, "serve", str(database), "--device", "cpu", "--socket", path]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)

    return run


@pytest.fixture
def works() -> Callable[[Server], bool]:
    """Return a function that checks that a new client gets correct hits."""

    def check(server: Server) -> bool:
        client = Client(server.path)
        client.request([GB1])
        hits, end = client.receive_results()
        client.close()
        return [hit["header"] for hit in hits["hits"]] == ["gb1"] and end["type"] == "end"

    return check
