"""`foldcli serve` and `foldcli search --server`: real processes, real sockets, clients of every kind."""

import contextlib
import json
import os
import queue
import random
import signal
import socket
import stat
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


def mutants(count: int) -> Iterator[str]:
    """Relatives of ubiquitin, with 5 to 40 residues changed."""
    rng = random.Random(1)
    for _ in range(count):
        letters = list(UBIQUITIN)
        for place in rng.sample(range(len(letters)), rng.randint(5, 40)):
            letters[place] = rng.choice("ACDEFGHIKLMNPQRSTVWY")
        yield "".join(letters)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hundred relatives of ubiquitin and one protein G."""
    folder = tmp_path_factory.mktemp("database")
    records = [f">m{i} mutant {i} ü\n{sequence}\n" for i, sequence in enumerate(mutants(400))]
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
def serve(database: Path, folder: Path) -> Iterator[Callable[..., Server]]:
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


def search(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [*FOLDCLI, "search", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


def works(server: Server) -> bool:
    """Whether a new client gets a right answer."""
    client = Client(server.path)
    client.ask([GB1])
    hits, end = client.answer()
    client.close()
    return [hit["header"] for hit in hits["hits"]] == ["gb1"] and end["type"] == "end"


def refused(where: str, database: object) -> subprocess.CompletedProcess[str]:
    """What a server says that is not to start."""
    command = [*FOLDCLI, "serve", str(database), "--device", "cpu", "--socket", where]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    (line,) = result.stderr.strip().splitlines()
    return line


def test_ready_line_and_socket(serve: Callable[..., Server], folder: Path, database: Path) -> None:
    server = serve()
    assert server.lines[-1] == (
        f"ready: {folder / 's.sock'} serves {database}, 401 sequences, 30456 residues, on cpu"
    )
    mode = (folder / "s.sock").lstat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    hello = Client(server.path).hello
    assert (hello["protocol"], hello["sequences"], hello["residues"]) == (1, 401, 30456)
    checksums = {
        n: p["sha256"] for n, p in json.loads((database / "manifest.json").read_text())["parts"].items()
    }
    assert hello["checksums"] == checksums


@pytest.mark.parametrize("options", [(), ("--format-output", "query,theader,bits,evalue,cigar,tcov,taln")])
def test_tables_are_those_of_a_search_without_server(
    shared: Server, database: Path, folder: Path, options: tuple[str, ...]
) -> None:
    limits = ("--max-seqs", "350", "-e", "10", *options)
    here = search("queries.fasta", database, "-o", "here.m8", "--device", "cpu", *limits)
    there = search("queries.fasta", "--server", shared.path, "-o", "there.m8", *limits)
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    table = (folder / "there.m8").read_bytes()
    assert table == (folder / "here.m8").read_bytes() and len(table.splitlines()) > 300
    assert there.stderr == here.stderr
    streamed = search("-", "--server", shared.path, "-o", "-", *limits, stdin=QUERIES)
    assert streamed.stdout.encode() == table


@pytest.mark.parametrize("kind", ["a3m", "sto"])
def test_alignments_are_those_of_a_search_without_server(
    shared: Server, database: Path, folder: Path, kind: str
) -> None:
    limits = ("--format", kind, "--gap-open", "10", "--comp-bias-corr", "0", "--min-seq-id", "0.6")
    assert search("queries.fasta", database, "-o", "here", "--device", "cpu", *limits).returncode == 0
    there = search("queries.fasta", "--server", shared.path, "-o", "there", *limits)
    assert there.returncode == 0, there.stderr
    names = {f"q{i}.{kind}{record}" for i in (1, 2) for record in ("", ".json")}
    assert {path.name for path in (folder / "there").iterdir()} == names
    for name in names:
        assert (folder / "there" / name).read_bytes() == (folder / "here" / name).read_bytes()
    # what one of them has finished is finished for the other too, until a setting changes
    again = search("queries.fasta", "--server", shared.path, "-o", "here", *limits)
    assert again.stderr.count("already done") == 2
    again = search("queries.fasta", database, "-o", "there", "--device", "cpu", *limits)
    assert again.stderr.count("already done") == 2
    changed = search("queries.fasta", "--server", shared.path, "-o", "here", *limits, "-e", "1e-9")
    assert "already done" not in changed.stderr


def test_a_search_in_a_server_loads_neither_numba_nor_torch(shared: Server) -> None:
    arguments = ["search", "queries.fasta", "--server", str(shared.path), "-o"]
    for output in (["hits.m8"], ["out", "--format", "a3m"]):
        code = (
            "import sys, runpy, contextlib\n"
            f"sys.argv = ['foldcli', *{[*arguments, *output]!r}]\n"
            "with contextlib.suppress(SystemExit):\n"
            "    runpy.run_module('foldcli', run_name='__main__')\n"
            "print(*sys.modules)\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "q1: 300 hits" in result.stderr
        assert not set(result.stdout.split()) & {"torch", "numba", "Bio", "gemmi"}


def test_one_bad_query_does_not_stop_the_others(shared: Server, folder: Path) -> None:
    (folder / "mixed.fasta").write_text(f">short\nM\n{QUERIES}")
    result = search("mixed.fasta", "--server", shared.path, "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    (failure,) = map(json.loads, (folder / "out/failures.jsonl").read_text().splitlines())
    assert failure["target"] == "short"
    assert (folder / "out/q1.a3m").exists() and (folder / "out/q2.a3m").exists()


def test_a_query_that_the_server_does_not_take_is_one_that_failed(shared: Server, folder: Path) -> None:
    # the first is more residues than are taken, the second more bytes than a request may have
    huge = f">p\n{GB1}\n>q1a\n{'MK' * 50_001}\n>q1b\n{'MK' * 600_000}\n"
    (folder / "mixed.fasta").write_text(f"{QUERIES}{huge}>q3\n{GB1}\n")
    result = search("mixed.fasta", "--server", shared.path, "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    failures = map(json.loads, (folder / "out/failures.jsonl").read_text().splitlines())
    reasons = {failure["target"]: failure["error"] for failure in failures}
    assert set(reasons) == {"q1a", "q1b"}
    assert "100,002 residues: the server takes up to 100,000" in reasons["q1a"]
    assert "bytes is more than the 1,048,576 that are taken" in reasons["q1b"]
    assert {path.stem for path in (folder / "out").glob("*.a3m")} == {"p", "q1", "q2", "q3"}
    alone = search("mixed.fasta", "--server", shared.path, "-o", "hits.m8")
    assert alone.returncode == 3 and not (folder / "hits.m8").exists()
    assert works(shared)


def test_queries_that_make_more_than_one_request(shared: Server, folder: Path) -> None:
    sequences = [UBIQUITIN * 20, GB1] * 400
    assert sum(map(len, sequences)) > 620_000
    (folder / "q.fasta").write_text("".join(f">q{i} {'é' * 999}\n{s}\n" for i, s in enumerate(sequences)))
    result = search("q.fasta", "--server", shared.path, "-o", "-", "--max-seqs", "1", "-q")
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert rows == [f"q{i}" for i in range(800)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("queries.fasta", "--server", "no.sock"), 4, "no server at no.sock"),
        (("queries.fasta", "--server", "queries.fasta"), 4, "no server at queries.fasta"),
        (("queries.fasta", "--server", "d/" * 60), 3, "too long for a unix socket: 119 bytes, and 107"),
        (("queries.fasta", "--server", "no.sock", "--device", "cpu"), 2, "--device is the server's"),
        (("queries.fasta", "--server", "no.sock", "--threads", "2"), 2, "--threads is the server's"),
        (("queries.fasta", "DB", "--server", "no.sock"), 2, "DB is a database: with --server every"),
        (("--server", "no.sock"), 2, "Missing argument"),
    ],
)
def test_what_the_client_refuses(
    folder: Path, database: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (folder / "DB").symlink_to(database)
    result = search(*arguments, "-o", "x.m8")
    assert result.returncode == code and said in result.stderr and "Traceback" not in result.stderr
    assert not (folder / "x.m8").exists()
    if code == 4:
        assert "foldcli serve DB --socket" in result.stderr


@pytest.mark.parametrize("kind", ["m8", "a3m"])
def test_a_server_that_dies_in_the_middle(serve: Callable[..., Server], folder: Path, kind: str) -> None:
    server = serve()
    (folder / "many.fasta").write_text("".join(f">q{i}\n{UBIQUITIN}\n" for i in range(1000)))
    command = [*FOLDCLI, "search", "many.fasta", "--server", "s.sock", "-o", "out", "--format", kind]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "q1: 300 hits" in line:
                server.process.kill()
                break
        rest = process.stderr.read().splitlines()
        assert process.wait() == 4
    (said,) = [line for line in rest if "hits" not in line]
    assert said == (
        "foldcli: error: the server at s.sock went away during the search; run this again once it is back"
    )
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if kind == "m8":
        assert not (folder / "out").exists()
    else:
        assert all(path.read_text().count(">") == 301 for path in (folder / "out").glob("*.a3m"))


def test_a_live_socket_is_not_taken_and_a_dead_one_is(serve: Callable[..., Server], folder: Path) -> None:
    first = serve()
    second = refused("s.sock", "no_db")
    assert second.returncode == 3
    assert one_line(second) == (
        f"foldcli: error: s.sock: a server (process {first.process.pid}) has this socket already"
    )
    assert works(first)
    first.process.kill()
    first.process.wait()
    assert (folder / "s.sock").is_socket()
    third = serve()
    assert works(third)
    assert third.stop() == 0
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_of_two_that_take_a_dead_ones_place_at_once_one_does(
    serve: Callable[..., Server], folder: Path
) -> None:
    dead = serve()
    dead.process.kill()
    dead.process.wait()
    both = [serve(wait=False), serve(wait=False)]
    said = [server.wait_for("s.sock") for server in both]
    assert sorted(line.split(": ")[0] for line in said) == ["foldcli", "ready"]
    codes = [
        None if line.startswith("ready") else server.process.wait()
        for server, line in zip(both, said, strict=True)
    ]
    assert sorted(codes, key=str) == [3, None]
    assert works(both[codes.index(None)])


def test_someone_elses_socket_and_other_files_are_left_alone(database: Path, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind("other.sock")
        other.listen()
        taken = refused("other.sock", database)
        assert (taken.returncode, one_line(taken)) == (
            3, "foldcli: error: other.sock: a server has this socket already"
        )  # fmt: skip
    is_file = refused("queries.fasta", database)
    assert is_file.returncode == 3 and "exists and is no socket, so it is not replaced" in one_line(is_file)
    too_long = refused("x" * 108, database)
    assert too_long.returncode == 3 and "108 bytes, and 107 are the most" in one_line(too_long)
    nowhere = refused("no/s.sock", database)
    assert nowhere.returncode == 3 and "no/s.sock" in one_line(nowhere)
    assert (folder / "queries.fasta").read_text() == QUERIES
    assert {path.name for path in folder.iterdir()} == {"queries.fasta", "other.sock"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(serve: Callable[..., Server], folder: Path, number: int) -> None:
    server = serve()
    running, idle, half = (Client(server.path) for _ in range(3))
    half.socket.sendall(b"\0\0")
    running.ask([UBIQUITIN] * 100)
    assert running.receive()["query"] == 0
    server.process.send_signal(number)
    server.wait_for("stopping: no more requests are taken, 1 are running")
    with pytest.raises(FileNotFoundError):
        Client(server.path)
    for other in (idle, half):
        assert other.receive()["code"] == 4
        with pytest.raises(EOFError):
            other.receive()
    *hits, end = running.answer()
    assert [message["query"] for message in hits] == list(range(1, 100)) and end["type"] == "end"
    assert server.process.wait(PATIENCE) == 0
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_the_drain_is_bounded(serve: Callable[..., Server], folder: Path) -> None:
    server = serve("--drain", "0")
    client = Client(server.path)
    client.ask([UBIQUITIN * 20] * 500)
    client.receive()
    assert server.stop() == 0
    *_, last = client.answer()
    assert (last["type"], last["code"]) == ("error", 4) and "stopping" in last["reason"]
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_a_second_signal_does_not_wait(serve: Callable[..., Server]) -> None:
    server = serve()
    client = Client(server.path)
    client.ask([UBIQUITIN * 20] * 2000)
    client.receive()
    server.process.send_signal(signal.SIGINT)
    server.wait_for("stopping")
    assert server.stop(signal.SIGINT) == 0
    assert any("given up" in line for line in server.lines)


def test_a_signal_before_it_is_ready(serve: Callable[..., Server], folder: Path) -> None:
    server = serve(wait=False)
    server.wait_for("loading")
    assert server.stop() == 0
    assert "stopped before it was ready" in server.lines
    assert {path.name for path in folder.iterdir()} == {"queries.fasta"}


def test_clients_that_die(shared: Server) -> None:
    # before they say anything, within the length, within a message
    for data in (b"", b"\0\0", struct.pack(">I", 1000) + b'{"type": '):
        client = Client(shared.path)
        client.socket.sendall(data)
        client.close()
    # after a request, before and while its hits are sent
    for read in (0, 3):
        client = Client(shared.path)
        client.ask([UBIQUITIN * 10] * 500)
        for _ in range(read):
            client.receive()
        client.close()
        assert int(shared.wait_for("queries dropped").split()[-3]) > 0
    # the sending half alone
    client = Client(shared.path)
    client.ask([UBIQUITIN * 10] * 500)
    client.socket.shutdown(socket.SHUT_WR)
    shared.wait_for("queries dropped")
    # without a word to the system: as if it had been killed
    victim = subprocess.Popen(
        [*FOLDCLI, "search", "-", "--server", str(shared.path), "-o", "-"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert victim.stdin is not None and victim.stderr is not None
    victim.stdin.write("".join(f">q{i}\n{UBIQUITIN * 10}\n" for i in range(500)))
    victim.stdin.close()
    assert "q0: 300 hits" in victim.stderr.readline()
    victim.kill()
    victim.wait()
    shared.wait_for("queries dropped")
    assert works(shared)


def test_a_client_that_does_not_read_blocks_nobody(shared: Server) -> None:
    slow = Client(shared.path)
    sequences = list(mutants(300))
    slow.ask(sequences, max_seqs=400)
    shared.wait_for("its search waits until more of its results are read")
    assert works(shared) and works(shared)
    messages = slow.answer()
    assert [message["query"] for message in messages[:-1]] == list(range(300))
    quick = Client(shared.path)
    quick.ask(sequences[250:260], max_seqs=400)
    again = quick.answer()
    assert [m["hits"] for m in again[:-1]] == [m["hits"] for m in messages[250:260]]


def test_a_client_that_asks_and_does_not_read_is_not_listened_to(serve: Callable[..., Server]) -> None:
    server = serve()
    client = Client(server.path)
    client.socket.settimeout(2)
    wrong = (struct.pack(">I", 14) + b'{"type": "no"}') * 10_000
    with pytest.raises(TimeoutError):
        for _ in range(100):
            client.socket.sendall(wrong)
    assert works(server)
    client.close()
    assert works(server)


def test_one_query_does_not_wait_for_all_of_anothers(serve: Callable[..., Server]) -> None:
    server = serve()
    large, small = Client(server.path), Client(server.path)
    large.ask([UBIQUITIN * 5] * 600, max_seqs=5)
    large.receive()
    small.ask([GB1])
    assert small.answer()[-1]["type"] == "end"
    assert ": 1 queries, 1 hits" in server.wait_for(" queries, ")
    assert large.answer()[-1]["type"] == "end"
    assert ": 600 queries, 3000 hits" in server.wait_for(" queries, ")


def test_many_clients_at_once(shared: Server, folder: Path) -> None:
    command = [*FOLDCLI, "search", "queries.fasta", "--server", str(shared.path), "-q", "-o"]
    processes = [subprocess.Popen([*command, f"{i}.m8"]) for i in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    tables = {(folder / f"{i}.m8").read_bytes() for i in range(8)}
    assert len(tables) == 1 and len(tables.pop().splitlines()) == 301


def test_more_clients_than_are_taken_wait(shared: Server) -> None:
    clients = [Client(shared.path) for _ in range(256)]
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.connect(str(shared.path))
    clients[100].ask([GB1])
    assert clients[100].answer()[-1]["type"] == "end"
    waiting.setblocking(False)
    with pytest.raises(BlockingIOError):
        waiting.recv(1)
    for client in clients:
        client.close()
    waiting.settimeout(PATIENCE)
    assert waiting.recv(4)
    waiting.close()
    assert works(shared)


def test_a_connection_serves_request_after_request(shared: Server) -> None:
    client = Client(shared.path)
    for sequence, count in ((GB1, 1), (UBIQUITIN, 300), (GB1, 1)):
        client.ask([sequence])
        hits, end = client.answer()
        assert len(hits["hits"]) == count and end["seconds"] > 0
    client.ask([GB1], gap_open=5)
    assert "no E-value statistics for gap costs 5/1" in client.answer()[-1]["reason"]
    client.ask([GB1], evalues=1)
    assert "settings: there is no 'evalues'" in client.answer()[-1]["reason"]
    client.ask([GB1])
    assert client.answer()[-1]["type"] == "end"


def test_a_request_before_the_last_is_answered_is_refused(shared: Server) -> None:
    client = Client(shared.path)
    client.ask([UBIQUITIN * 10] * 200)
    client.ask([GB1])
    last = client.answer()[-1]
    assert last["code"] == 3 and "before the last one has been answered" in last["reason"]
    with pytest.raises(EOFError):
        client.receive()
    assert works(shared)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff" * 4, "a message of 4,294,967,295 bytes is more than the 1,048,576 that are taken"),
        (struct.pack(">I", (1 << 20) + 1) + b"x" * 500_000, "a message of 1,048,577 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "is more than the 1,048,576"),
        (struct.pack(">I", 100_000) + b"[" * 100_000, "nested too deeply"),
        (struct.pack(">I", 4) + b"null", "no JSON object with a type"),
        (struct.pack(">I", 2) + b"\xff\xff", "no JSON"),
    ],
)
def test_what_is_no_message_ends_the_connection_with_the_reason(
    shared: Server, data: bytes, said: str
) -> None:
    client = Client(shared.path)
    with contextlib.suppress(BrokenPipeError):
        client.socket.sendall(data)
    message = client.receive()
    assert (message["type"], message["code"]) == ("error", 3) and said in message["reason"]
    with contextlib.suppress(ConnectionResetError), pytest.raises(EOFError):
        client.receive()
    assert works(shared)


def test_a_claimed_length_takes_no_memory(shared: Server) -> None:
    def resident_bytes() -> int:
        pages = Path(f"/proc/{shared.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    assert works(shared)
    before = resident_bytes()
    clients = [Client(shared.path) for _ in range(200)]
    for client in clients:
        client.socket.sendall(struct.pack(">I", 1 << 20) + b'{"type"')
    assert works(shared)
    assert resident_bytes() - before < 50 << 20
    for client in clients:
        client.close()


def test_rubbish_of_every_kind(shared: Server) -> None:
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
        client = Client(shared.path)
        client.socket.sendall(data[: rng.choice([len(data), len(data), rng.randint(1, len(data))])])
        client.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(EOFError, ConnectionResetError):
            while client.receive()["type"] in ("hits", "end", "error"):
                pass
        client.close()
    assert works(shared) and shared.process.poll() is None


def test_what_the_server_cannot_hold_is_named(shared: Server) -> None:
    client = Client(shared.path)
    client.ask([GB1, "MK" * 50_001])
    assert client.answer()[-1]["reason"] == "query 'q1' has 100,002 residues: the server takes up to 100,000"
    client.ask([GB1], max_seqs=2**31 - 1)  # no more than there are
    assert client.answer()[-1]["type"] == "end"
