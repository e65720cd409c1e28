"""For the tests of the server: a server process, a client that speaks the protocol itself, a database."""

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

FOLDCLI = [sys.executable, "-m", "foldcli"]
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
QUERIES = f">q1 first\n{UBIQUITIN}\n>q2 β\n{GB1}\n"
PATIENCE = 120.0

Start = Callable[..., "Server"]
Search = Callable[..., "subprocess.CompletedProcess[str]"]


class Server:
    """A `foldcli serve` process; its lines on stderr can be waited for."""

    def __init__(self, database: Path, path: Path, *arguments: str) -> None:
        self.path = path
        command = [*FOLDCLI, "serve", str(database), "--socket", str(path), "--device", "cpu", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._arriving: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._arriving.put(line.rstrip("\n"))
        self._arriving.put(None)

    def wait_for(self, text: str) -> str:
        """The next line that has `text` in it."""
        while (line := self._arriving.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"ended without saying {text!r}: {self.lines}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code; `lines` has all of its lines."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        while (line := self._arriving.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        return code


class Client:
    """A client that speaks the protocol by itself, and can misbehave."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self.hello = self.receive()

    def send(self, message: Any) -> None:
        payload = json.dumps(message).encode()
        self.socket.sendall(struct.pack(">I", len(payload)) + payload)

    def ask(self, sequences: Sequence[str], **settings: Any) -> None:
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
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return data

    def answer(self) -> list[dict[str, Any]]:
        """The messages up to one that is not hits."""
        messages = [self.receive()]
        while messages[-1]["type"] == "hits":
            messages.append(self.receive())
        return messages

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="session")
def relatives() -> list[str]:
    """Four hundred relatives of ubiquitin, with 5 to 40 residues changed."""
    rng = random.Random(1)
    sequences = []
    for _ in range(400):
        letters = list(UBIQUITIN)
        for place in rng.sample(range(len(letters)), rng.randint(5, 40)):
            letters[place] = rng.choice("ACDEFGHIKLMNPQRSTVWY")
        sequences.append("".join(letters))
    return sequences


@pytest.fixture(scope="session")
def database(relatives: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hundred relatives of ubiquitin and one protein G."""
    folder = tmp_path_factory.mktemp("database")
    records = [f">m{i} mutant {i} ü\n{sequence}\n" for i, sequence in enumerate(relatives)]
    (folder / "db.fasta").write_text("".join(records) + f">gb1\n{GB1}\n")
    command = [*FOLDCLI, "createdb", str(folder / "db.fasta"), "-o", str(folder / "db"), "-q"]
    assert subprocess.run(command).returncode == 0
    return folder / "db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with queries.fasta in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "queries.fasta").write_text(QUERIES)
    return tmp_path


@pytest.fixture
def serve(database: Path, folder: Path) -> Iterator[Start]:
    """Starts a server at s.sock, by default waits until it is ready, and ends it after the test."""
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
    """A server for the tests that should leave it as it was; they are many and it starts once."""
    server = Server(database, tmp_path_factory.mktemp("shared") / "s.sock", "-v", "--max-request", "1")
    server.wait_for("ready: ")
    yield server
    code = server.stop()
    assert code == 0 and "Traceback" not in "\n".join(server.lines)


@pytest.fixture
def connect() -> Callable[[Path], Client]:
    """Connects to a server's socket."""
    return Client


@pytest.fixture
def search() -> Search:
    """Runs `foldcli search`."""

    def run(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*FOLDCLI, "search", *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True)

    return run


@pytest.fixture
def refused() -> Search:
    """Runs a server that is not to start."""

    def run(where: str, database: object) -> subprocess.CompletedProcess[str]:
        command = [*FOLDCLI, "serve", str(database), "--device", "cpu", "--socket", where]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    return run


@pytest.fixture
def works() -> Callable[[Server], bool]:
    """Whether a new client of a server gets a right answer."""

    def answers(server: Server) -> bool:
        client = Client(server.path)
        client.ask([GB1])
        hits, end = client.answer()
        client.close()
        return [hit["header"] for hit in hits["hits"]] == ["gb1"] and end["type"] == "end"

    return answers
