"""Latency of one query through a running server, and the load of many clients.

    python benchmarks/serve.py DB [--residues 300] [--times 100] [--device auto]
    python benchmarks/serve.py DB --http-clients 500 [--kill]

Starts `foldcli serve DB` and sends single queries, each cut from another target of the database, over one
open connection. Prints median and 95th percentile of the wall time, and of the time that the server spent
searching; the rest is the socket and JSON. The first answer may compile kernels, so it is printed separately.

With --http-clients N, starts `foldcli serve --http` instead. N clients submit a protein each, all at once,
and ask every half second until they have the results. Prints the number of errors, the times to the first and
the median results, and the throughput divided by that of `foldcli search --format a3m`, the whole command;
before that, the time of this command with one query, which compiles kernels. With --kill, the server is
killed (SIGKILL) at a fifth of the results and started again: every ticket must still be answered.
"""

import contextlib
import http.client
import json
import math
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import IO

from options import parse_options

from foldcli.server.client import RemoteSearcher
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord

FOLDCLI = [sys.executable, "-m", "foldcli"]


def queries_from(database: TargetDatabase, count: int, residues: int) -> list[FastaRecord]:
    """Cut queries from random targets, preferably long enough ones."""
    rng = random.Random(0)
    first = int(database.arrays.lengths.searchsorted(residues))
    first = first if first < len(database) else len(database) - 1
    targets = [rng.randrange(first, len(database)) for _ in range(count)]
    return [
        FastaRecord(f"q{i}", (database.sequence(target) * residues)[:residues])
        for i, target in enumerate(targets)
    ]


@contextlib.contextmanager
def server(arguments: Sequence[str], log: IO[str]) -> "Iterator[subprocess.Popen[str]]":
    """Start a server, wait until it is ready, and write its log to a file; it may be killed."""
    process = subprocess.Popen([*FOLDCLI, "serve", *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            print(line, end="", file=log, flush=True)
            if line.startswith("ready"):
                break
        else:
            raise SystemExit(f"the server did not start: {Path(log.name).read_text()}")
        # keep reading its messages, or it would block once the pipe is full
        reader = subprocess.Popen(["cat"], stdin=process.stderr, stdout=log)
        yield process
    finally:
        process.terminate()
        if process.wait() not in (0, -signal.SIGKILL):
            raise SystemExit("the server ended with an error")
    reader.wait()


def load_test(db: str, device: str, queries: Sequence[FastaRecord], seconds: float, kill: bool) -> None:
    """Print how a server answers many clients at once; they give up after a time."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        batch = 0.0 if kill else batch_seconds(db, device, queries, folder)
        options = ["--queue", folder / "queue", "--cache", folder / "cache", "--max-waiting", len(queries)]
        arguments = [db, "--device", device, *map(str, options), "--http"]
        log = stack.enter_context((folder / "log").open("w"))
        start = time.perf_counter()
        process = stack.enter_context(server([*arguments, "127.0.0.1:0"], log))
        match = re.search(r"ready: http://(\S+)", (folder / "log").read_text())
        assert match is not None
        address, answers = match[1], []
        print(f"server ready: {time.perf_counter() - start:.2f} s", flush=True)
        # otherwise each client reads the system's certificates
        urllib.request.install_opener(urllib.request.build_opener())
        start = time.perf_counter()
        with ThreadPoolExecutor(len(queries)) as clients:
            client = partial(answer_seconds, f"http://{address}", start + seconds, kill)
            for each in as_completed([clients.submit(client, query) for query in queries]):
                answers.append(each.result())
                if len(answers) % 100 == 0:
                    print(f"{len(answers)} answers: {time.perf_counter() - start:.2f} s", flush=True)
                if kill and len(answers) == len(queries) // 5:
                    process.kill()
                    stack.enter_context(server([*arguments, address], log))
                    print(f"killed, and ready again: {time.perf_counter() - start:.2f} s", flush=True)
        served = time.perf_counter() - start
        stack.close()
        print(
            "".join(re.findall(r".* sequences of .* tickets, .* s\n", (folder / "log").read_text())), end=""
        )
    found = [each for each in answers if each is not None]
    median = statistics.median(found) if found else math.nan
    print(
        f"{len(queries)} clients: {len(answers) - len(found)} errors, "
        f"first answer {min(found, default=0):.2f} s, median {median:.2f} s, last {served:.2f} s, "
        f"{len(found) / served:.1f} a second"
        + ("" if kill else f"; throughput ÷ batch search {len(found) / len(queries) * batch / served:.2f}")
    )


def batch_seconds(db: str, device: str, queries: Sequence[FastaRecord], folder: Path) -> float:
    """Return the time of a search with all queries, after one with the first."""
    for name, count in (("one", 1), ("batch", len(queries))):
        fasta = "".join(f">{query.header}\n{query.sequence}\n" for query in queries[:count])
        (folder / "q.fasta").write_text(fasta)
        command = [*FOLDCLI, "search", str(folder / "q.fasta"), db, "-q", "--format", "a3m"]
        start = time.perf_counter()
        subprocess.run([*command, "--device", device, "-o", str(folder / name)], check=True)
        seconds = time.perf_counter() - start
        print(f"search with {count}: {seconds:.2f} s", flush=True)
    return seconds


def answer_seconds(url: str, end: float, patient: bool, query: FastaRecord) -> float | None:
    """Return the time from a ticket's submission to its downloaded results; None if there are none.

    Args:
        url: address of the server.
        end: when to give up.
        patient: ask again if the server cannot be reached.
        query: the sequence.
    """

    def ask(path: str, form: bytes | None = None) -> bytes:
        while True:
            try:
                with urllib.request.urlopen(f"{url}/{path}", form) as reply:
                    return bytes(reply.read())
            except (OSError, http.client.HTTPException) as error:
                if not patient or isinstance(error, urllib.error.HTTPError) or time.perf_counter() > end:
                    raise
            time.sleep(0.5)

    start = time.perf_counter()
    form = urllib.parse.urlencode({"q": f">101\n{query.sequence}\n", "mode": "env"}).encode()
    try:
        ticket = json.loads(ask("ticket/msa", form))
        while ticket["status"] in ("PENDING", "RUNNING") and time.perf_counter() < end:
            time.sleep(0.5)
            ticket = json.loads(ask(f"ticket/{ticket['id']}"))
        ask(f"result/download/{ticket['id']}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(error, file=sys.stderr)
        return None
    return time.perf_counter() - start


def main() -> None:
    arguments = parse_options(
        __doc__, "db", residues=300, times=100, device="auto", seconds=60.0, http_clients=0, kill=False
    )  # fmt: skip
    database = TargetDatabase.open(arguments.db)
    if arguments.http_clients:
        queries = queries_from(database, arguments.http_clients, arguments.residues)
        load_test(arguments.db, arguments.device, queries, arguments.seconds, arguments.kill)
        return
    queries = queries_from(database, arguments.times, arguments.residues)
    with tempfile.TemporaryDirectory() as temporary:
        socket, log = Path(temporary) / "s.sock", Path(temporary) / "log"
        options, start = ["--socket", str(socket), "--device", arguments.device], time.perf_counter()
        with log.open("w") as stream, server([arguments.db, *options], stream):
            ready = time.perf_counter() - start
            remote = RemoteSearcher(socket)
            seconds, hits = [], 0
            for query in queries:
                start = time.perf_counter()
                ((_, query_hits),) = remote.search_many([query], SearchSettings())
                seconds.append(time.perf_counter() - start)
                hits += len(query_hits)
        searching = [float(match[1]) for match in re.finditer(r"hits, ([0-9.]+) s", log.read_text())]
    hello = remote.hello
    print(f"{hello.database}: {hello.sequences:,} sequences, {hello.residues:,} residues, on {hello.device}")
    print(
        f"{len(queries)} queries of {arguments.residues} residues, {hits / len(queries):.0f} hits each; "
        f"ready in {ready:.1f} s, first answer {1e3 * seconds[0]:.1f} ms"
    )
    for name, values in (("others", seconds[1:]), ("searching alone", searching[1:])):
        high = statistics.quantiles(values, n=20)[-1]
        print(f"{name}: median {1e3 * statistics.median(values):.1f} ms, 95 % within {1e3 * high:.1f} ms")


if __name__ == "__main__":
    main()
