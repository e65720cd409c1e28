"""What featurising a target takes beside loading it from the cache, and what its entry's size could be.

    python benchmarks/feature_cache.py [MSA...] [--made 60000x400 ...] [--times 7] [--sizes]

For every alignment, and for made ones of ROWSxCOLUMNS, in a process of its own: read the file, which includes
unpacking and parsing it, make the features, store the entry, load it with and without its checksum, and draw
one iteration of model 1 (508 sampled and 5,120 extra rows) from what was loaded. Medians in milliseconds,
wall time / time of the processor; files are in the system's memory; the peak of memory is that of the first
reading and featurising, beyond what the imports take. Loading and drawing compile their kernels before they
are timed. At the end come the bars, of the processor's time: a deep alignment (1,000 rows and more) is loaded
in a fiftieth of what reading and featurising it takes, and the median target in 10 ms. `--sizes` prints the
bytes of the features packed in several ways, with the processor's time to pack and unpack them.
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

from features.cache import FeatureCache, cache_key
from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from msa.io.alignments import read_alignment
from msa.io.compression import read_bytes

# rows of an alignment that is called deep
DEEP = 1000
AMINO_ACIDS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)


def made_alignment(rows: int, columns: int) -> bytes:
    """An A3M: 20 to 80 % of a query's residues exchanged at random, ends cut, runs of gaps, insertions."""
    rng = np.random.default_rng(0)
    query = AMINO_ACIDS[rng.integers(20, size=columns)]
    text = [b">query\n%s\n" % query.tobytes()]
    for number in range(1, rows):
        row = query.copy()
        exchanged = np.flatnonzero(rng.random(columns) < rng.uniform(0.2, 0.8))
        row[exchanged] = AMINO_ACIDS[rng.integers(20, size=len(exchanged))]
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


class Watch:
    """Median wall and processor milliseconds of steps."""

    def __init__(self, times: int) -> None:
        self.times, self.medians = times, {}

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        walls, cores = [], []
        for _ in range(self.times):
            wall, core = time.perf_counter(), time.process_time()
            result = work()
            walls.append(time.perf_counter() - wall)
            cores.append(time.process_time() - core)
        self.medians[name] = 1e3 * statistics.median(walls), 1e3 * statistics.median(cores)
        return result


def peak_memory() -> float:
    """MiB that this program had at most; getrusage would count the process that started it too."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(name: str, path: Path, times: int, sizes: bool, results: Any) -> None:
    """Print one alignment's figures, and put down name, rows, ms to load and to make, of the processor."""
    before = peak_memory()
    make_features([read_alignment(path)])
    memory = peak_memory() - before
    watch = Watch(times)
    alignment = watch.step("read", lambda: read_alignment(path))
    features = watch.step("features", lambda: make_features([alignment]))
    with tempfile.TemporaryDirectory() as folder:
        cache, key = FeatureCache(folder), cache_key([alignment])
        cache.store(key, features)
        start = time.process_time()
        entry = cache.store(key, features)
        stored = 1e3 * (time.process_time() - start)
        cache.load(key)
        loaded = watch.step("load", lambda: cache.load(key))
        watch.step("no verify", lambda: cache.load(key, verify=False))
        size = entry.stat().st_size
    settings = SamplingSettings(template_slots=4)
    sample_features(loaded, settings, 1, seed=0)
    watch.step("draw", lambda: sample_features(loaded, settings, 1, seed=0))

    rows, columns = features["msa"].shape
    content = read_bytes(path)
    print(
        f"\n{name}: {len(alignment):,} rows × {columns}, {rows:,} distinct, {len(content):,} bytes unpacked"
    )
    for step, (wall, core) in watch.medians.items():
        print(f"  {step:9} {wall:10.2f} / {core:.2f} ms")
    print(f"  store     {'':10}   {stored:.2f} ms")
    load, features_alone = watch.medians["load"], watch.medians["features"]
    made = [watch.medians["read"][k] + features_alone[k] for k in (0, 1)]
    for what, took in (("reading and featurising", made), ("featurising alone", features_alone)):
        print(f"  loading is {took[0] / load[0]:.1f} / {took[1] / load[1]:.1f} times as fast as {what}")
    results.put((name, rows, load[1], made[1]))
    print(f"  peak memory {memory:.1f} MiB, {memory * 2**20 / len(content):.2f} times the unpacked file")
    packed = len(gzip.compress(content))
    print(f"  entry {size:,} bytes, {size / packed:.3f} of the gzipped alignment ({packed:,})")
    if sizes:
        print_sizes(features)


def print_sizes(features: dict[str, np.ndarray]) -> None:
    """Every feature packed on its own, by several means."""
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


def print_size(name: str, size: int, packing: float, unpacking: float) -> None:
    print(f"  {name:8} {size:>12,} bytes, {1e3 * packing:.1f} ms to pack, {1e3 * unpacking:.1f} to unpack")


def print_bars(measured: list[tuple[str, int, float, float]]) -> None:
    """Whether loading is as fast as it should be, in the processor's time: others may use it too."""
    print("\nbars")
    for name, rows, load, made in measured:
        if rows >= DEEP:
            word = "met" if made / load >= 50 else "missed"
            print(
                f"  {name}: loading {made / load:.1f} times as fast as reading and featurising, of 50: {word}"
            )
    if measured:
        load = statistics.median(load for _, _, load, _ in measured)
        print(f"  median target: {load:.2f} ms to load, of 10: {'met' if load < 10 else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("alignments", nargs="*", type=Path)
    parser.add_argument("--made", nargs="*", default=[], metavar="ROWSxCOLUMNS")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--sizes", action="store_true")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results, measured = context.SimpleQueue(), []
    with tempfile.TemporaryDirectory() as folder:
        inputs = [(path.name, path) for path in arguments.alignments]
        for size in arguments.made:
            inputs.append((f"made {size}", Path(folder) / f"{size}.a3m"))
            inputs[-1][1].write_bytes(made_alignment(*map(int, size.split("x"))))
        for name, path in inputs:
            process = context.Process(
                target=measure, args=(name, path, arguments.times, arguments.sizes, results)
            )
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{name}: failed")
            measured.append(results.get())
    print_bars(measured)


if __name__ == "__main__":
    main()
