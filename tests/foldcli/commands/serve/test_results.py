"""`foldcli search --server`: the same output as without a server, and its error messages."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Search, Server, Start

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
QUERIES = f">q1 first\n{UBIQUITIN}\n>q2 β\n{GB1}\n"
FOLDCLI = [sys.executable, "-m", "foldcli"]


@pytest.mark.parametrize("options", [(), ("--format-output", "query,theader,bits,evalue,cigar,tcov,taln")])
def test_tables_equal_those_of_a_local_search(
    shared: "Server", database: Path, folder: Path, options: tuple[str, ...], search: "Search"
) -> None:
    limits = ("--max-seqs", "350", "-e", "10", *options)
    local = search("queries.fasta", database, "-o", "local.m8", "--device", "cpu", *limits)
    remote = search("queries.fasta", "--server", shared.path, "-o", "remote.m8", *limits)
    assert (local.returncode, remote.returncode) == (0, 0), remote.stderr
    table = (folder / "remote.m8").read_bytes()
    assert table == (folder / "local.m8").read_bytes() and len(table.splitlines()) > 300
    assert remote.stderr == local.stderr
    streamed = search("-", "--server", shared.path, "-o", "-", *limits, stdin=QUERIES)
    assert streamed.stdout.encode() == table


@pytest.mark.parametrize("kind", ["a3m", "sto"])
def test_alignments_equal_those_of_a_local_search(
    shared: "Server", database: Path, folder: Path, kind: str, search: "Search"
) -> None:
    limits = ("--format", kind, "--gap-open", "13", "--comp-bias-corr", "0", "--min-seq-id", "0.6")
    assert search("queries.fasta", database, "-o", "local", "--device", "cpu", *limits).returncode == 0
    remote = search("queries.fasta", "--server", shared.path, "-o", "remote", *limits)
    assert remote.returncode == 0, remote.stderr
    names = {f"q{i}.{kind}{record}" for i in (1, 2) for record in ("", ".json")}
    assert {path.name for path in (folder / "remote").iterdir()} == names
    for name in names:
        assert (folder / "remote" / name).read_bytes() == (folder / "local" / name).read_bytes()
    # each search skips the other's finished queries, until a setting changes
    again = search("queries.fasta", "--server", shared.path, "-o", "local", *limits)
    assert again.stderr.count("already done") == 2
    again = search("queries.fasta", database, "-o", "remote", "--device", "cpu", *limits)
    assert again.stderr.count("already done") == 2
    changed = search("queries.fasta", "--server", shared.path, "-o", "local", *limits, "-e", "1e-9")
    assert "already done" not in changed.stderr


def test_profile_searches_equal_local_ones(
    shared: "Server", database: Path, folder: Path, search: "Search"
) -> None:
    limits = ("--max-seqs", "350", "-e", "10")
    search("queries.fasta", database, "-o", "q", "--format", "a3m", "--device", "cpu", "-e", "1e-9")
    # another id than that of the saved profile
    aligned = (folder / "q/q1.a3m").read_text().replace(">q1", ">aligned", 1)
    (folder / "q/aligned.a3m").write_text(aligned)
    queries = ("q/aligned.a3m", "--profile", "p.npz")
    saving = ("--save-profile", "p.npz", "--num-iterations", "2", "-o", "first.m8")
    assert search("queries.fasta", database, *saving, "--device", "cpu", *limits).returncode == 0
    local = search(*queries, database, "-o", "local.m8", "--device", "cpu", *limits)
    remote = search(*queries, "--server", shared.path, "-o", "remote.m8", *limits, "-v")
    assert (local.returncode, remote.returncode) == (0, 0), remote.stderr
    table = (folder / "remote.m8").read_bytes()
    assert table == (folder / "local.m8").read_bytes()
    assert table.endswith((folder / "first.m8").read_bytes()) and "profile of an alignment" in remote.stderr
    # the profiles change the result
    assert search("queries.fasta", "--server", shared.path, "-o", "-", *limits).stdout.encode() not in table


def test_client_loads_torch_never_and_numba_for_alignments_only(shared: "Server") -> None:
    arguments = ["search", "queries.fasta", "--server", str(shared.path), "-o"]
    alignments = ["out", "--format", "a3m", "--max-seqs", "300", "--fast"]
    for output, heavy in (["hits.m8"], {"numba"}), (alignments, set()):
        code = (
            "import sys, runpy, contextlib\n"
            f"sys.argv = ['foldcli', *{[*arguments, *output]!r}]\n"
            "with contextlib.suppress(SystemExit):\n"
            "    runpy.run_module('foldcli', run_name='__main__')\n"
            "print(*sys.modules)\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "q1: 300 hits" in result.stderr
        assert not set(result.stdout.split()) & {"torch", "Bio", "gemmi", *heavy}


def test_bad_query_does_not_stop_the_others(shared: "Server", folder: Path, search: "Search") -> None:
    (folder / "mixed.fasta").write_text(f">short\nM\n{QUERIES}")
    result = search("mixed.fasta", "--server", shared.path, "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    (failure,) = map(json.loads, (folder / "out/failures.jsonl").read_text().splitlines())
    assert failure["target"] == "short"
    assert (folder / "out/q1.a3m").exists() and (folder / "out/q2.a3m").exists()


def test_query_over_the_limits_does_not_stop_the_others(
    shared: "Server", folder: Path, search: "Search", works: Callable[["Server"], bool]
) -> None:
    # q1a has too many residues, and q1b too many bytes for a request
    huge = f">p\n{GB1}\n>q1a\n{'MK' * 50_001}\n>q1b\n{'MK' * 600_000}\n"
    (folder / "mixed.fasta").write_text(f"{QUERIES}{huge}>q3\n{GB1}\n")
    result = search("mixed.fasta", "--server", shared.path, "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    failures = map(json.loads, (folder / "out/failures.jsonl").read_text().splitlines())
    reasons = {failure["target"]: failure["error"] for failure in failures}
    assert set(reasons) == {"q1a", "q1b"}
    assert "100,002 residues: the server takes up to 100,000" in reasons["q1a"]
    assert "bytes exceeds the limit of 1,048,576" in reasons["q1b"]
    assert {path.stem for path in (folder / "out").glob("*.a3m")} == {"p", "q1", "q2", "q3"}
    alone = search("mixed.fasta", "--server", shared.path, "-o", "hits.m8")
    assert alone.returncode == 3 and not (folder / "hits.m8").exists()
    assert works(shared)


@pytest.mark.slow
def test_many_queries_are_sent_in_several_requests(shared: "Server", folder: Path, search: "Search") -> None:
    sequences = [UBIQUITIN * 20, GB1] * 400
    assert sum(map(len, sequences)) > 620_000
    (folder / "q.fasta").write_text("".join(f">q{i} {'é' * 999}\n{s}\n" for i, s in enumerate(sequences)))
    result = search("q.fasta", "--server", shared.path, "-o", "-", "--max-seqs", "1", "-q")
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert rows == [f"q{i}" for i in range(800)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("queries.fasta", "--server", "no.sock"), 4, "no server at no.sock"),
        (("queries.fasta", "--server", "queries.fasta"), 4, "no server at queries.fasta"),
        (
            ("queries.fasta", "--server", "d/" * 60),
            3,
            "too long for a unix socket: 119 bytes, and the limit is 107",
        ),
        (
            ("queries.fasta", "--server", "no.sock", "--device", "cpu"),
            2,
            "--device cannot be combined with --server",
        ),
        (
            ("queries.fasta", "--server", "no.sock", "--threads", "2"),
            2,
            "--threads cannot be combined with --server",
        ),
        (("queries.fasta", "DB", "--server", "no.sock"), 2, "DB is a database, not a query"),
        (("--server", "no.sock"), 2, "Missing argument"),
    ],
)
def test_errors_of_the_client(
    folder: Path, database: Path, arguments: tuple[str, ...], code: int, message: str, search: "Search"
) -> None:
    (folder / "DB").symlink_to(database)
    result = search(*arguments, "-o", "x.m8")
    assert result.returncode == code and message in result.stderr and "Traceback" not in result.stderr
    assert not (folder / "x.m8").exists()
    if code == 4:
        assert "foldcli serve DB --socket" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["m8", "a3m"])
def test_server_that_dies_during_a_search(serve: "Start", folder: Path, kind: str) -> None:
    server = serve()
    (folder / "many.fasta").write_text("".join(f">q{i}\n{UBIQUITIN}\n" for i in range(1000)))
    command = [*FOLDCLI, "search", "many.fasta", "--server", "s.sock", "-o", "out", "--format", kind]
    command += ["--max-seqs", "300", "--fast"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "q1: 300 hits" in line:
                server.process.kill()
                break
        rest = process.stderr.read().splitlines()
        assert process.wait() == 4
    (error,) = [line for line in rest if "hits" not in line]
    assert error == (
        "foldcli: error: the server at s.sock went away during the search; run this again once it is back"
    )
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if kind == "m8":
        assert not (folder / "out").exists()
    else:
        assert all(path.read_text().count(">") == 301 for path in (folder / "out").glob("*.a3m"))


def test_concurrent_clients_get_the_same_hits(shared: "Server", folder: Path) -> None:
    command = [*FOLDCLI, "search", "queries.fasta", "--server", str(shared.path), "-q", "-o"]
    processes = [subprocess.Popen([*command, f"{i}.m8"]) for i in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    tables = {(folder / f"{i}.m8").read_bytes() for i in range(4)}
    assert len(tables) == 1 and len(tables.pop().splitlines()) == 301
