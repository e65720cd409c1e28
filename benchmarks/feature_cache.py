"""Time to compute the features of a target compared with loading them from the cache, and entry sizes.

    python benchmarks/feature_cache.py [MSA...] [--random 60000x400 ...] [--times 7]

For each alignment file, and for random alignments of ROWSxCOLUMNS, in a separate process: read the file
(decompress and parse), compute the features, store the entry, load it with and without checksum, and sample
one iteration of model 1 (508 sampled and 5,120 extra rows). Prints medians in milliseconds, as wall time /
CPU time, with files in the page cache, and the peak memory of the first reading and computing, without that
of the imports. Kernels are compiled before timing.
"""

import gzip
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from options import parse_options

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.cache.cache import FeatureCache, cache_key
from msa.alignments.files import read_alignment
from msa.io.compression import read_bytes

AMINO_ACIDS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)


def random_alignment(rows: int, columns: int) -> bytes:
    """Return a random A3M with replaced residues (20 to 80 %), cut ends, runs of gaps, and insertions."""
    rng = np.random.default_rng(0)
    query = AMINO_ACIDS[rng.integers(20, size=columns)]
    text = [b">query\n%s\n" % query.tobytes()]
    for number in range(1, rows):
        row = query.copy()
        replaced = np.flatnonzero(rng.random(columns) < rng.uniform(0.2, 0.8))
        row[replaced] = AMINO_ACIDS[rng.integers(20, size=len(replaced))]
        first, last = rng.integers(0, columns // 3 + 1, size=2)
        row[:first] = row[columns - last :] = ord("-")
        for start in rng.integers(0, columns, size=3):
            row[start : start + rng.integers(1, 12)] = ord("-")
        cuts = [0, *np.sort(rng.integers(1, columns, size=rng.poisson(3))).tolist(), columns]
        pieces = [row[cuts[0] : cuts[1]].tobytes()]
        for start, end in pairwise(cuts[1:]):
            inserted = AMINO_ACIDS[rng.integers(20, size=rng.geometric(0.15))].tobytes().lower()
            pieces += [inserted, row[start:end].tobytes()]
        text.append(
            b">UniRef100_A0A%07d\t%d\t0.%03d\n%s\n" % (number, number % 300, number % 1000, b"".join(pieces))
        )
    return b"".join(text)


class Stopwatch:
    """Median wall and CPU milliseconds of named steps."""

    def __init__(self, times: int) -> None:
        self.times, self.medians = times, {}

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Time a step several times and return its last result."""
        walls, cpus = [], []
        for _ in range(self.times):
            wall, cpu = time.perf_counter(), time.process_time()
            result = work()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        self.medians[name] = 1e3 * statistics.median(walls), 1e3 * statistics.median(cpus)
        return result


def peak_memory() -> float:
    """Return this process's peak memory in MiB; getrusage would include the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(name: str, path: Path, times: int) -> None:
    """Print one alignment's figures."""
    before = peak_memory()
    make_features([read_alignment(path)])
    memory = peak_memory() - before
    stopwatch = Stopwatch(times)
    alignment = stopwatch.step("read", lambda: read_alignment(path))
    features = stopwatch.step("features", lambda: make_features([alignment]))
    with tempfile.TemporaryDirectory() as folder:
        cache, key = FeatureCache(folder), cache_key([alignment])
        cache.store(key, features)
        start = time.process_time()
        entry = cache.store(key, features)
        stored = 1e3 * (time.process_time() - start)
        cache.load(key)
        loaded = stopwatch.step("load", lambda: cache.load(key))
        stopwatch.step("no verify", lambda: cache.load(key, verify=False))
        size = entry.stat().st_size
    settings = SamplingSettings(template_slots=4)
    sample_features(loaded, settings, 1, seed=0)
    stopwatch.step("sample", lambda: sample_features(loaded, settings, 1, seed=0))

    rows, columns = features["msa"].shape
    content = read_bytes(path)
    print(f"\n{name}: {len(alignment):,} rows × {columns}, {rows:,} distinct, {len(content):,} bytes of text")
    for step, (wall, cpu) in stopwatch.medians.items():
        print(f"  {step:9} {wall:10.2f} / {cpu:.2f} ms")
    print(f"  store     {'':10}   {stored:.2f} ms")
    load, compute = stopwatch.medians["load"], stopwatch.medians["features"]
    both = [stopwatch.medians["read"][k] + compute[k] for k in (0, 1)]
    for label, (wall, cpu) in (("reading and computing", both), ("computing alone", compute)):
        print(f"  loading is {wall / load[0]:.1f} / {cpu / load[1]:.1f} times as fast as {label}")
    print(f"  peak memory {memory:.1f} MiB, {memory * 2**20 / len(content):.2f} times the decompressed file")
    gzipped = len(gzip.compress(content))
    print(f"  entry {size:,} bytes, {size / gzipped:.3f} of the gzipped alignment ({gzipped:,})")
    print(f"  features {sum(value.nbytes for value in features.values()):,} bytes")


def main() -> None:
    """Measure all alignments in processes of their own."""
    arguments = parse_options(__doc__, "alignments*", random=[""], times=7)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        inputs = [(path.name, path) for path in arguments.alignments]
        for size in filter(None, arguments.random):
            inputs.append((f"random {size}", Path(folder) / f"{size}.a3m"))
            inputs[-1][1].write_bytes(random_alignment(*map(int, size.split("x"))))
        for name, path in inputs:
            process = context.Process(target=measure, args=(name, path, arguments.times))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{name}: failed")


if __name__ == "__main__":
    main()
