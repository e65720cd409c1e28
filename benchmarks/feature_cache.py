"""Time to compute the features of a target compared with loading them from the cache, and entry sizes.

    python benchmarks/feature_cache.py [MSA...] [--random 60000x400 ...] [--times 7] [--sizes]

For each alignment file, and for random alignments of ROWSxCOLUMNS, in a separate process: read the file
(decompress and parse), compute the features, store the entry, load it with and without checksum, and sample
one iteration of model 1 (508 sampled and 5,120 extra rows). Prints medians in milliseconds, as wall time /
CPU time, with files in the page cache, and the peak memory of the first reading and computing, without that
of the imports. Kernels are compiled before timing. Targets, in CPU time: a deep alignment (1,000 rows or
more) is loaded 50 times as fast as it is read and computed, and the median entry is loaded in 10 ms. --sizes
prints the size of the features compressed in several ways, with CPU times.
"""

import argparse
import gzip
import io
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from features.cache.cache import FeatureCache, cache_key
from msa.alignments.files import read_alignment
from msa.io.compression import read_bytes

# an alignment with at least this many rows counts as deep
DEEP = 1000
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


def measure(name: str, path: Path, times: int, sizes: bool, results: Any) -> None:
    """Print one alignment's figures; put name, rows, and CPU ms of loading and computing into `results`."""
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
    results.put((name, rows, load[1], both[1]))
    print(f"  peak memory {memory:.1f} MiB, {memory * 2**20 / len(content):.2f} times the decompressed file")
    gzipped = len(gzip.compress(content))
    print(f"  entry {size:,} bytes, {size / gzipped:.3f} of the gzipped alignment ({gzipped:,})")
    if sizes:
        print_sizes(features)


def print_sizes(features: dict[str, np.ndarray]) -> None:
    """Print the total size of all features, each compressed separately, for several methods."""
    raw = [np.ascontiguousarray(value).tobytes() for value in features.values()]
    print(f"  {'raw':8} {sum(map(len, raw)):>12,} bytes")
    for level in (1, 3, 9, 12, 16, 19):
        start = time.process_time()
        frames = [zstandard.ZstdCompressor(level=level).compress(data) for data in raw]
        middle = time.process_time()
        for frame in frames:
            zstandard.ZstdDecompressor().decompress(frame)
        end = time.process_time()
        print_size(f"zstd {level}", sum(map(len, frames)), middle - start, end - middle)
    start = time.process_time()
    stream = io.BytesIO()
    np.savez_compressed(stream, **features)
    middle = time.process_time()
    stream.seek(0)
    with np.load(stream) as archive:
        for name in archive.files:
            archive[name]
    print_size("npz", len(stream.getvalue()), middle - start, time.process_time() - middle)


def print_size(name: str, size: int, compression: float, decompression: float) -> None:
    """Print a size with the seconds of compression and decompression."""
    times = f"{1e3 * compression:.1f} ms to compress, {1e3 * decompression:.1f} to decompress"
    print(f"  {name:8} {size:>12,} bytes, {times}")


def print_targets(measured: list[tuple[str, int, float, float]]) -> None:
    """Print which CPU time targets are met."""
    print("\ntargets")
    for name, rows, load, compute in measured:
        if rows >= DEEP:
            verdict = "met" if compute / load >= 50 else "missed"
            print(
                f"  {name}: loading {compute / load:.1f} times as fast as read and computed, of 50: {verdict}"
            )
    if measured:
        load = statistics.median(load for _, _, load, _ in measured)
        print(f"  median entry: {load:.2f} ms to load, of 10: {'met' if load < 10 else 'missed'}")


def main() -> None:
    """Measure all alignments and print the targets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("alignments", nargs="*", type=Path)
    parser.add_argument("--random", nargs="*", default=[], metavar="ROWSxCOLUMNS")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--sizes", action="store_true")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results, measured = context.SimpleQueue(), []
    with tempfile.TemporaryDirectory() as folder:
        inputs = [(path.name, path) for path in arguments.alignments]
        for size in arguments.random:
            inputs.append((f"random {size}", Path(folder) / f"{size}.a3m"))
            inputs[-1][1].write_bytes(random_alignment(*map(int, size.split("x"))))
        for name, path in inputs:
            process = context.Process(
                target=measure, args=(name, path, arguments.times, arguments.sizes, results)
            )
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{name}: failed")
            measured.append(results.get())
    print_targets(measured)


if __name__ == "__main__":
    main()
