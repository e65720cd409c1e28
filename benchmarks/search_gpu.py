"""Time of the whole command `foldcli search` on GPUs, compared with the CPU engine and MMseqs2-GPU.

    python benchmarks/search_gpu.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]
        [--num-iterations 3] [--devices cuda:0,1 cuda:0,1,2,3] [--cpu] [--mmseqs PATH]

The database contains the FASTA file `--times` times (ids get a suffix). Every search is a process of its own,
including start-up: the first one (empty kernel cache), the second, one query, all queries (best of the
repeats), all queries on several GPUs, all queries in three iterations, and on the CPU. The m8 files of all
queries in the same number of iterations must be equal byte for byte.

`--mmseqs` runs MMseqs2 on the same FASTA: createdb and makepaddedseqdb separately, then
`search --gpu 1 --prefilter-mode 1` with the same -e and --max-seqs, and with identities like in our m8
(--alignment-mode 3), then convertalis. --cpu also runs the CPU engine.
"""

import argparse
import filecmp
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from options import parse_options
from processes import Run, compile_bytecode, fail, python_environment, timed

from msa.io.compression import read_bytes
from msa.io.fasta import read_fasta

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ["--max-seqs", "300", "-e", "1e-3"]


def write_copies(fasta: Path, times: int, path: Path) -> None:
    """Write a FASTA file several times, uncompressed; ids of further copies end in _1, _2 and so on."""
    content = read_bytes(fasta)
    with path.open("wb") as stream:
        for copy in range(times):
            suffix = f"_{copy}".encode() if copy else b""
            stream.write(re.sub(rb"^(>\S+)", rb"\1" + suffix, content, flags=re.MULTILINE))


class Foldcli:
    """Searches of one database, each in a process of its own.

    Args:
        folder: for results and caches.
        database: the database.
        threads: of each process.
        settings: options of every search.
    """

    def __init__(self, folder: Path, database: Path, threads: int, settings: list[str]) -> None:
        # a search runs in another folder
        folder, database = folder.resolve(), database.resolve()
        self._folder, self._database, self._threads = folder, database, threads
        self._settings = settings
        # otherwise, numba stores machine code next to the sources
        self._environment = python_environment(folder) | {
            "FOLDCLI_CACHE": str(folder / "cache"),
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        # installed packages have bytecode
        compile_bytecode(folder)

    def search(self, name: str, queries: Path, device: str, iterations: int | None = None) -> Run:
        """Search in a process of its own; write the table to FOLDER/NAME.m8.

        Args:
            name: of the table.
            queries: FASTA file.
            device: value of `--device`.
            iterations: replaces the number of iterations of the settings.
        """
        command = [sys.executable, "-m", "foldcli", "search", str(queries.resolve()), str(self._database)]
        command += ["-o", str(self.table(name)), "--device", device, "--overwrite"]
        command += ["--threads", str(self._threads), *self._settings]
        if iterations is not None:
            command += ["--num-iterations", str(iterations)]
        # Python imports from the working folder first
        return timed(command, self._environment, ROOT)

    def table(self, name: str) -> Path:
        """Return the path of a table."""
        return self._folder / f"{name}.m8"


def print_run(label: str, run: Run, remark: str = "") -> None:
    print(f"{label:44s}{run.seconds:9.2f} s{run.peak_bytes / 2**20:9.0f} MiB  {remark}", flush=True)


def assert_equal(tables: list[Path]) -> None:
    """Check that the tables of searches, at least one, are equal."""
    first = tables[0]
    differing = [str(table) for table in tables[1:] if not filecmp.cmp(first, table, shallow=False)]
    if differing:
        fail(f"{', '.join(differing)} differ from {first}")
    with first.open("rb") as stream:
        lines = sum(1 for _ in stream)
    print(f"equal byte for byte, {lines} lines: {', '.join(table.stem for table in tables)}", flush=True)


class Mmseqs:
    """MMseqs2 on the same FASTA."""

    def __init__(self, program: str, folder: Path, threads: int, iterations: int) -> None:
        self._program, self._folder, self._threads = program, folder, threads
        self._iterations = iterations
        folder.mkdir(exist_ok=True)

    def _run(self, module: str, *arguments: object) -> Run:
        return timed([self._program, module, *map(str, arguments), "-v", "2"])

    def build(self, fasta: Path) -> None:
        """Build MMseqs2's databases."""
        print_run("MMseqs2 createdb", self._run("createdb", fasta, self._folder / "targets"))
        padded = self._run("makepaddedseqdb", self._folder / "targets", self._folder / "padded")
        print_run("MMseqs2 makepaddedseqdb", padded)

    def search(self, queries: Path, name: str) -> tuple[Run, Run]:
        """Run search and convertalis for some queries; write FOLDER/NAME.m8."""
        work = self._folder / name
        work.mkdir()
        threads = ("--threads", self._threads)
        self._run("createdb", queries, work / "queries")
        databases = work / "queries", self._folder / "padded"
        found = self._run(
            "search", *databases, work / "found", work / "tmp", "--gpu", 1, "--prefilter-mode", 1,
            "--alignment-mode", 3, "--num-iterations", self._iterations, *SETTINGS, *threads,
        )  # fmt: skip
        table = self._run("convertalis", *databases, work / "found", self._folder / f"{name}.m8", *threads)
        return found, table


def best(search: Callable[[], Run], repeats: int) -> Run:
    """Return the fastest of several runs."""
    return min((search() for _ in range(repeats)), key=lambda run: run.seconds)


def run_on_device(options: argparse.Namespace, foldcli: Foldcli, one: Path) -> tuple[Run, list[str]]:
    """Run all of our searches on a device.

    Returns:
        The run with all queries, and the names of all searches with the same queries.
    """
    queries, device, repeats = options.queries, options.device, options.repeats
    first = foldcli.search("first", queries, device)
    print_run("first start", first)
    print_run("second start", foldcli.search("second", queries, device))
    one_query = best(lambda: foldcli.search("one", one, device), 2 * repeats)
    print_run(f"one query ({len(next(iter(read_fasta(one))).sequence)} residues)", one_query)
    all_queries = best(lambda: foldcli.search("all", queries, device), repeats)
    print_run(f"all queries, {device}", all_queries)
    names = ["first", "second", "all"]

    def compared(name: str, label: str, search: Callable[[], Run]) -> None:
        run = best(search, repeats)
        share = all_queries.seconds / run.seconds
        print_run(f"all queries, {label}", run, f"{share:.2f} × the speed of {device}")
        names.append(name)

    for devices in filter(None, options.devices):
        name = devices.replace(":", "_").replace(",", "_")
        compared(name, devices, lambda d=devices, n=name: foldcli.search(n, queries, d))  # type: ignore[misc]
    three = best(lambda: foldcli.search("three", queries, device, iterations=3), repeats)
    print_run("all queries, three iterations", three)
    return all_queries, names


def main() -> None:
    options = parse_options(
        __doc__, fasta=..., queries=..., times=16, num_iterations=1, device="cuda", devices=[""], mmseqs=str,
        cpu=False, threads=len(os.sched_getaffinity(0)), repeats=3, folder=Path
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        fasta, database, one = folder / "targets.fasta", folder / "db", folder / "one.fasta"
        write_copies(options.fasta, options.times, fasta)
        records = sorted(read_fasta(options.queries), key=lambda record: len(record.sequence))
        middle = records[len(records) // 2]
        one.write_text(f">{middle.header}\n{middle.sequence}\n")
        command = [sys.executable, "-m", "foldcli", "createdb", str(fasta), "-o", str(database)]
        print_run("foldcli createdb", timed([*command, "--threads", str(options.threads)]))

        settings = [*SETTINGS, "--num-iterations", str(options.num_iterations)]
        foldcli = Foldcli(folder, database, options.threads, settings)
        all_queries, names = run_on_device(options, foldcli, one)
        if options.cpu and options.device != "cpu":
            run = foldcli.search("cpu", options.queries, "cpu")
            print_run(f"all queries, CPU, {options.threads} threads", run)
            names.append("cpu")
        assert_equal([foldcli.table(name) for name in names])

        if options.mmseqs:
            competitor = Mmseqs(options.mmseqs, folder / "mmseqs", options.threads, options.num_iterations)
            competitor.build(fasta)
            for label, queries in (("one query", one), ("all queries", options.queries)):
                found, table = competitor.search(queries, label.replace(" ", "_"))
                print_run(f"MMseqs2 search, {label}", found, f"and {table.seconds:.2f} s of convertalis")
            ratio = found.seconds / all_queries.seconds
            with_table = (found.seconds + table.seconds) / all_queries.seconds
            print(f"MMseqs2 ÷ foldcli, all queries: {ratio:.2f} (with convertalis {with_table:.2f})")


if __name__ == "__main__":
    main()
