"""Seconds of `foldcli search` on a GPU with several versions of foldcli, which take turns on one machine.

    python benchmarks/search_versions.py FOLDER... --fasta TARGETS.fasta --queries QUERIES.fasta
        [--times 16] [--repeats 3] [--three-iterations]

Each FOLDER is a checkout of foldcli. Machines differ by more than versions do, so versions can only be
compared in one run of this script. Every search is a process of its own. A first search with each version
compiles its kernels; then, in every repeat, each version searches with all queries while the GPU holds the
database, and while the database is streamed through a quarter of its size in GPU memory. All tables must be
equal byte for byte. With `--three-iterations`, each repeat also has an iterated search; the first one of
each version compiles kernels and does not count.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from search_gpu import SETTINGS, Foldcli, assert_equal, write_copies


def print_seconds(label: str, runs: list[float]) -> None:
    print(f"{label:60s}{'  '.join(f'{seconds:6.2f}' for seconds in runs)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--fasta", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--three-iterations", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, threads = Path(name), len(os.sched_getaffinity(0))
        fasta, database = folder / "targets.fasta", folder / "db"
        write_copies(options.fasta, options.times, fasta)
        command = [sys.executable, "-m", "foldcli", "createdb", str(fasta), "-o", str(database)]
        subprocess.run(command, cwd=options.versions[0], check=True, capture_output=True)
        versions = []
        for number, root in enumerate(options.versions):
            (own := folder / str(number)).mkdir()
            versions.append(Foldcli(own, database, threads, SETTINGS, root.resolve()))
        seconds: dict[tuple[str, int], list[float]] = {}

        def search(kind: str, number: int, **arguments: int) -> None:
            run = versions[number].search(kind, options.queries, options.device, **arguments)
            seconds.setdefault((kind, number), []).append(run.seconds)

        kinds: dict[str, dict[str, int]] = {
            "resident": {},
            "streamed": {"max_gpu_bytes": versions[0].database_bytes // 4},
        }
        for number in range(len(versions)):
            search("first", number)
        if options.three_iterations:
            kinds["three iterations"] = {"iterations": 3}
            for version in versions:
                version.search("compiled", options.queries, options.device, iterations=3)
        for _ in range(options.repeats):
            for number in range(len(versions)):
                for kind, arguments in kinds.items():
                    search(kind, number, **arguments)
        for kind in ("first", *kinds):
            for number, root in enumerate(options.versions):
                print_seconds(f"{kind}, {root}", seconds[kind, number])
        assert_equal([v.table(kind) for v in versions for kind in ("first", "resident", "streamed")])
        if options.three_iterations:
            assert_equal([version.table("three iterations") for version in versions])


if __name__ == "__main__":
    main()
