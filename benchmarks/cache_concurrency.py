"""Test of one feature cache with many writing processes, which are killed at random and restarted.

    python benchmarks/cache_concurrency.py [--processes 64] [--targets 200] [--kills 400] [--folder DIR]

Each process computes the features of all targets in its own order, as `cache-features --overwrite` does, so
that all processes write all the time. At random times one process is killed with SIGKILL and restarted, until
the requested number of kills is reached. Then all are killed at once and restarted without `--overwrite`, and
run to their end. Prints counts, and whether the cache holds exactly the bytes that a single process writes.
--folder should be on the file system to test. The exit code is 1 if anything is wrong.
"""

import argparse
import multiprocessing
import random
import signal
import tempfile
import time
from multiprocessing.context import ForkProcess
from pathlib import Path

from features.cache.cache import FeatureCache, read_entry
from features.cache.cleanup import remove_abandoned
from features.cache.entry import CorruptEntryError
from msa.alignments.files import Alignment, parse_alignment

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def targets(count: int) -> list[Alignment]:
    """Make alignments of 50 to 249 rows and 60 to 219 columns, a third of the residues replaced at random."""
    rng = random.Random(1)
    alignments = []
    for number in range(count):
        query = rng.choices(AMINO_ACIDS, k=60 + rng.randrange(160))
        rows = [query]
        for _ in range(49 + rng.randrange(200)):
            rows.append([rng.choice(AMINO_ACIDS) if rng.random() < 1 / 3 else letter for letter in query])
        text = "".join(f">t{number}_{row}\n{''.join(letters)}\n" for row, letters in enumerate(rows))
        alignments.append(parse_alignment(text.encode(), f"{number}.a3m"))
    return alignments


def fill(root: Path, inputs: list[Alignment], seed: int, overwrite: bool = False) -> None:
    """Compute the features of all targets once."""
    remove_abandoned(root)
    cache = FeatureCache(root)
    for alignment in random.Random(seed).sample(inputs, len(inputs)):
        cache.load_or_make([alignment], overwrite)


def contents(root: Path) -> dict[str, bytes]:
    """Return the content of every file of a cache."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def run(root: Path, inputs: list[Alignment], processes: int, kills: int) -> dict[str, int]:
    """Fill the cache at `root` with killed and restarted processes, and return counts of what happened."""
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    counts = {"starts": 0, "kills": 0, "kills that left a temporary file": 0, "processes that failed": 0}

    def start(number: int, overwrite: bool = True) -> ForkProcess:
        counts["starts"] += 1
        process = context.Process(target=fill, args=(root, inputs, number, overwrite))
        process.start()
        return process

    def end(process: ForkProcess) -> None:
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        counts["kills"] += killed
        counts["kills that left a temporary file"] += any((root / "tmp").glob(f"*-{process.pid}-*"))
        counts["processes that failed"] += not killed and process.exitcode != 0

    workers = [start(number) for number in range(processes)]
    while counts["kills"] < kills:
        time.sleep(rng.expovariate(40))
        number = rng.randrange(processes)
        workers[number].kill()
        end(workers[number])
        workers[number] = start(number)
    for worker in workers:
        worker.kill()
    for worker in workers:
        end(worker)
    workers = [start(number, overwrite=False) for number in range(processes)]
    for worker in workers:
        end(worker)
    return counts


def main() -> None:
    """Run the test and print its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="folder for the caches, which are removed at the end")
    arguments = parser.parse_args()
    inputs = targets(arguments.targets)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        single, shared = Path(folder) / "single", Path(folder) / "shared"
        start = time.perf_counter()
        fill(single, inputs, 0)
        print(f"one process: {arguments.targets} targets in {time.perf_counter() - start:.1f} s")
        fill(single, inputs, 0)  # compiles the loading code, which the processes inherit
        start = time.perf_counter()
        counts = run(shared, inputs, arguments.processes, arguments.kills)
        print(f"{arguments.processes} processes: {time.perf_counter() - start:.1f} s")
        for name, count in counts.items():
            print(f"  {name}: {count}")

        found, expected = contents(shared), contents(single)
        valid = 0
        for key in FeatureCache(shared).keys():  # noqa: SIM118
            try:
                read_entry(FeatureCache(shared).path(key), key)
                valid += 1
            except CorruptEntryError as error:
                print(error)
        left = [name for name in found if name.startswith("tmp")]
        same = sum(found.get(name) == content for name, content in expected.items())
        print(f"valid entries: {valid} of {arguments.targets}")
        print(f"entries with the bytes of a single process: {same} of {len(expected)}")
        print(f"other files: {len(found) - valid}, temporary ones {len(left)}")
    if found != expected or valid != arguments.targets or counts["processes that failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
