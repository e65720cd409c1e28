"""Latency of one query through a resident server, beside a search that starts from nothing.

    python benchmarks/serve.py DB [--residues 300] [--times 100] [--processes 20] [--cold 3] [--device auto]

Starts `foldcli serve DB` and sends single queries, each cut from another target of the database, (a) over one
open connection, (b) through a new `foldcli search --server` each; then (c) runs `foldcli search DB` without a
server. Prints median and 95th percentile of the wall time, and of that the part that the server spent
searching; the rest is the socket, JSON and, for processes, Python's start and imports. Every way's first
result is printed apart, as it may compile kernels. Tables of (b) and (c) are compared byte by byte.
"""

import argparse
import contextlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from foldcli.server.client import RemoteSearcher
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.settings import SearchSettings

FOLDCLI = [sys.executable, "-m", "foldcli"]


def queries_from(database: TargetDatabase, count: int, residues: int) -> list[FastaRecord]:
    """Pieces of random targets, of those that are long enough where there are any."""
    rng = random.Random(0)
    first = int(database.lengths.searchsorted(residues))
    first = first if first < len(database) else len(database) - 1
    chosen = [rng.randrange(first, len(database)) for _ in range(count)]
    return [
        FastaRecord(f"q{i}", (database.sequence(target) * residues)[:residues])
        for i, target in enumerate(chosen)
    ]


@contextlib.contextmanager
def server(arguments: Sequence[str], log: IO[str]) -> Iterator[None]:
    """A server that is ready; its log goes to a file."""
    process = subprocess.Popen([*FOLDCLI, "serve", *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            print(line, end="", file=log, flush=True)
            if line.startswith("ready"):
                break
        else:
            raise SystemExit(f"the server did not start: {Path(log.name).read_text()}")
        # what it says from now on: read it, or it would wait for a reader
        reader = subprocess.Popen(["cat"], stdin=process.stderr, stdout=log)
        yield
    finally:
        process.terminate()
        if process.wait() != 0:
            raise SystemExit("the server ended with an error")
    reader.wait()


def seconds_of_searches(log: Path) -> list[float]:
    """What the server says that its requests took."""
    return [float(found[1]) for found in re.finditer(r"hits, ([0-9.]+) s", log.read_text())]


def row(name: str, walls: Sequence[float], searches: Sequence[float] = ()) -> None:
    """One line of the table: the first, then median and 95th percentile of the others, in milliseconds."""

    def pair(values: Sequence[float]) -> str:
        if not values:
            return f"{'':>10}{'':>10}"
        ordered = sorted(values)
        high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return f"{1e3 * statistics.median(ordered):10.1f}{1e3 * high:10.1f}"

    rest = walls[1:] or walls
    print(f"{name:<34}{len(walls):6}{1e3 * walls[0]:10.1f}{pair(rest)}{pair(searches[1:] or searches)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("db")
    parser.add_argument("--residues", type=int, default=300, help="of a query")
    parser.add_argument("--times", type=int, default=100, help="queries over one connection")
    parser.add_argument("--processes", type=int, default=20, help="queries through processes of their own")
    parser.add_argument("--cold", type=int, default=3, help="searches without a server")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    database = TargetDatabase.open(asked.db)
    queries = queries_from(database, max(asked.times, asked.processes, asked.cold), asked.residues)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for query in queries:
            (folder / f"{query.id}.fasta").write_text(f">{query.header}\n{query.sequence}\n")

        def search(query: FastaRecord, *where: str) -> tuple[float, bytes]:
            out = folder / "hits.m8"
            command = [*FOLDCLI, "search", str(folder / f"{query.id}.fasta"), *where, "-q", "-o", str(out)]
            begun = time.perf_counter()
            subprocess.run([*command, "--overwrite"], check=True)
            return time.perf_counter() - begun, out.read_bytes()

        socket, log = folder / "s.sock", folder / "log"
        begun = time.perf_counter()
        with (
            log.open("w") as stream,
            server([asked.db, "--socket", str(socket), "--device", asked.device], stream),
        ):
            ready = time.perf_counter() - begun
            remote = RemoteSearcher(socket)
            connected, hits = [], 0
            for query in queries[: asked.times]:
                begun = time.perf_counter()
                ((_, found),) = remote.search_many([query], SearchSettings())
                connected.append(time.perf_counter() - begun)
                hits += len(found)
            through = [search(query, "--server", str(socket)) for query in queries[: asked.processes]]
        searched = seconds_of_searches(log)
        cold = [search(query, asked.db, "--device", asked.device) for query in queries[: asked.cold]]

    hello = remote.hello
    print(f"{hello.database}: {hello.sequences:,} sequences, {hello.residues:,} residues, on {hello.device}")
    print(f"queries of {asked.residues} residues, {hits / asked.times:.0f} hits each; ready in {ready:.1f} s")
    print(
        f"{'milliseconds':<34}{'n':>6}{'first':>10}{'median':>10}{'p95':>10}{'of which':>10}{'searching':>10}"
    )
    row("one open connection", connected, searched[: asked.times])
    row("a process a query, --server", [wall for wall, _ in through], searched[asked.times :])
    row("a process a query, no server", [wall for wall, _ in cold])
    same = sum(one == other for (_, one), (_, other) in zip(through, cold, strict=False))
    print(f"tables with and without server: {same} of {min(len(through), len(cold))} equal")


if __name__ == "__main__":
    main()
