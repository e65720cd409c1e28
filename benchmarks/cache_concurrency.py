"""Processes that fill one cache at once while they are killed at random and started again.

    python benchmarks/cache_concurrency.py [--processes 64] [--targets 200] [--kills 400] [--folder DIR]

Each process makes the features of all targets, in an order of its own, as `cache-features --overwrite`
does, so that all write all the time. After random times one is killed by SIGKILL and started again, until so
many kills were done; then all are killed at once and started again without `--overwrite`, and go through.
Printed are the counts, and whether the cache holds then exactly what one process alone writes. The folder
should be on the file system in question; the exit code is 1 if anything is wrong.
"""

import argparse
import multiprocessing
import random
import signal
import tempfile
import time
from multiprocessing.context import ForkProcess
from pathlib import Path

from features.cache import FeatureCache, read_entry
from features.entry import CorruptEntryError
from features.temporaries import remove_abandoned
from msa.io.alignments import Alignment, parse_alignment

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def targets(count: int) -> list[Alignment]:
    """Alignments of 50 to 249 rows and 60 to 219 columns, a third of the residues exchanged at random."""
    rng = random.Random(1)
    made = []
    for number in range(count):
        query = rng.choices(AMINO_ACIDS, k=60 + rng.randrange(160))
        rows = [query]
        for _ in range(49 + rng.randrange(200)):
            rows.append([rng.choice(AMINO_ACIDS) if rng.random() < 1 / 3 else letter for letter in query])
        text = "".join(f">t{number}_{row}\n{''.join(letters)}\n" for row, letters in enumerate(rows))
        made.append(parse_alignment(text.encode(), f"{number}.a3m"))
    return made


def fill(root: Path, inputs: list[Alignment], seed: int, overwrite: bool = False) -> None:
    """One run over all targets."""
    remove_abandoned(root)
    cache = FeatureCache(root)
    for alignment in random.Random(seed).sample(inputs, len(inputs)):
        cache.load_or_make([alignment], overwrite)


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a cache."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def run(root: Path, inputs: list[Alignment], processes: int, kills: int) -> dict[str, int]:
    """Fill the cache at `root` with killed and restarted processes; how many were killed, and where."""
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="where the caches are made and removed")
    arguments = parser.parse_args()
    inputs = targets(arguments.targets)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        alone, shared = Path(folder) / "alone", Path(folder) / "shared"
        start = time.perf_counter()
        fill(alone, inputs, 0)
        print(f"one process: {arguments.targets} targets in {time.perf_counter() - start:.1f} s")
        fill(alone, inputs, 0)  # what loading compiles, the processes inherit
        start = time.perf_counter()
        counts = run(shared, inputs, arguments.processes, arguments.kills)
        print(f"{arguments.processes} processes: {time.perf_counter() - start:.1f} s")
        for name, count in counts.items():
            print(f"  {name}: {count}")

        found, expected = contents(shared), contents(alone)
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
        print(f"entries with the bytes of one process alone: {same} of {len(expected)}")
        print(f"other files: {len(found) - valid}, temporary ones {len(left)}")
    if found != expected or valid != arguments.targets or counts["processes that failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
