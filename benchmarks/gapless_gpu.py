"""Cell updates per second of the gapless filter on a GPU, by events around the kernels, and that it is exact.

    python benchmarks/gapless_gpu.py [--lengths 128,256,512,1024,2048] [--targets 2000000]
    python benchmarks/gapless_gpu.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]
    python benchmarks/gapless_gpu.py --tune

Random: targets of the query's length, residues uniform over the twenty; profiles of random queries as a
search makes them. Real: the targets as often as asked for and queries with their lengths as they come. A
sample of the scores is compared with the CPU engine's. Beside TCUPS (10¹² cells, query residues × target
residues, per second; padding not counted) stands the share of the shared-memory wall: 128 bytes a clock and
multiprocessor, two bytes a cell. `--tune` times every layout and prints a launch table.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.launch import GaplessFilter
from cuda.alignment.gapless.launch_table import Launch
from cuda.alignment.gapless.layout import Layout
from msa.alphabet import PAD, encode
from msa.cpu.gapless import gapless_scores
from msa.cpu.targets import Targets
from msa.fasta import read_fasta
from msa.profile import query_profile


class Resident:
    """Targets on the CPU and on the GPU."""

    def __init__(self, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> None:
        self.host = Targets(residues, offsets, lengths)
        self.arrays = [cuda.to_device(np.ascontiguousarray(a)) for a in (residues, offsets, lengths)]
        self.scores = cuda.device_array(len(lengths), np.int32)
        self.residues = int(lengths.sum(dtype=np.int64))

    def seconds(self, gapless: GaplessFilter, repeats: int) -> float:
        """The fastest of some calls."""
        best = float("inf")
        for _ in range(repeats):
            start, end = cuda.event(), cuda.event()
            start.record()
            gapless.scores(*self.arrays, self.scores)
            end.record()
            end.synchronize()
            best = min(best, cuda.event_elapsed_time(start, end) / 1e3)
        return best

    def differing(self, profile: np.ndarray, sample: int, threads: int) -> tuple[int, int]:
        """Scores that differ from the CPU engine's, and how many were compared."""
        count = len(self.host)
        rng = np.random.default_rng(0)
        chosen = np.unique(np.r_[0, count - 1, rng.integers(0, count, sample)])
        part = Targets(self.host.residues, self.host.offsets[chosen], self.host.lengths[chosen])
        expected = gapless_scores(profile, part, threads)
        found = self.scores.copy_to_host()[chosen]
        return int((found != expected).sum()), len(chosen)


def in_order(records: list[np.ndarray], times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residues, offsets and lengths as a database has them."""
    records = sorted((r for r in records for _ in range(times)), key=len)
    lengths = np.array([len(r) for r in records], np.int32)
    room = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(room) - room
    residues = np.full(int(room.sum()), PAD, np.uint8)
    for record, offset in zip(records, offsets.tolist(), strict=True):
        residues[offset : offset + len(record)] = record
    return residues, offsets, lengths


def random_targets(rng: np.random.Generator, count: int, length: int) -> Resident:
    room = (length + 3) // 4 * 4
    residues = rng.integers(0, 20, (count, room), dtype=np.uint8)
    residues[:, length:] = PAD
    offsets = np.arange(count, dtype=np.int64) * room
    return Resident(residues.reshape(-1), offsets, np.full(count, length, np.int32))


def random_profile(rng: np.random.Generator, length: int) -> np.ndarray:
    return query_profile(rng.integers(0, 20, length).astype(np.uint8))


def wall() -> float:
    """TCUPS at which every load of two bytes a cell comes from shared memory without a pause."""
    device: Any = cuda.get_current_device()
    return device.MULTIPROCESSOR_COUNT * device.CLOCK_RATE * 1e3 * 64 / 1e12


def line(label: str, cells: float, seconds: float, differing: int, compared: int) -> None:
    speed = cells / seconds / 1e12
    print(
        f"{label:32s} {seconds * 1e3:9.2f} ms  {speed:6.2f} TCUPS  {speed / wall():5.2f} of the wall "
        f"({wall():.1f})  {compared - differing} of {compared} = CPU",
        flush=True,
    )


def on_random(options: argparse.Namespace, cache: Path) -> None:
    rng = np.random.default_rng(1)
    for length in options.lengths:
        targets = random_targets(rng, options.targets, length)
        profile = random_profile(rng, length)
        for arithmetic in options.arithmetic:
            gapless = GaplessFilter(profile, cache, arithmetic)
            seconds = targets.seconds(gapless, 5)
            compared = targets.differing(profile, options.sample, options.threads)
            line(f"random {length}, {arithmetic}", length * targets.residues, seconds, *compared)


def on_real(options: argparse.Namespace, cache: Path) -> None:
    targets = Resident(*in_order([encode(r.sequence) for r in read_fasta(options.fasta)], options.times))
    profiles = [query_profile(encode(r.sequence)) for r in read_fasta(options.queries)][: options.count]
    print(f"{len(targets.host)} targets, {targets.residues} residues, {len(profiles)} queries", flush=True)
    for arithmetic in options.arithmetic:
        filters = [GaplessFilter(p, cache, arithmetic) for p in profiles]  # compiles
        targets.seconds(filters[0], 1)
        seconds, differing, compared = 0.0, 0, 0
        for k, (gapless, profile) in enumerate(zip(filters, profiles, strict=True)):
            seconds += targets.seconds(gapless, 1)
            if k % options.check_every == 0:
                found = targets.differing(profile, options.sample, options.threads)
                differing, compared = differing + found[0], compared + found[1]
        cells = sum(map(len, profiles)) * targets.residues
        line(f"real, {arithmetic}", cells, seconds, differing, compared)


def tune(options: argparse.Namespace, cache: Path) -> None:
    rng = np.random.default_rng(1)
    rows = []
    for length in options.lengths:
        targets = random_targets(rng, min(options.targets, 2**28 // length), length)
        profile = random_profile(rng, length)
        found = []
        for lanes in (4, 8, 16, 32):
            columns = -(-length // lanes // 8) * 8
            if columns > 128 or lanes * columns > 1.3 * length:
                continue
            for threads, blocks in ((192, 2), (256, 2), (256, 3), (256, 4), (512, 1)):
                # more registers than this are needed, and shared memory for as many blocks
                if threads * blocks * (columns // 2 + 50) > 2**16:
                    continue
                if Layout(lanes, columns).table_bytes * blocks > 227 * 2**10:
                    continue
                launch = Launch(Layout(lanes, columns), threads, blocks)
                try:
                    seconds = targets.seconds(GaplessFilter(profile, cache, launch=launch), 3)
                except RuntimeError as error:
                    print(f"{length} {launch}: {error}", flush=True)
                    continue
                speed = length * targets.residues / seconds / 1e12
                found.append((speed, launch))
                print(f"{length} {lanes} × {columns}, {threads} × {blocks}: {speed:.2f} TCUPS", flush=True)
        speed, best = max(found, key=lambda pair: pair[0])
        rows.append({
            "longest_query": length, "lanes": best.layout.lanes, "columns": best.layout.columns,
            "threads": best.threads, "blocks": best.blocks, "tcups": round(speed, 2),
        })  # fmt: skip
    print(json.dumps({"launches": rows}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--targets", type=int, default=2_000_000)
    parser.add_argument("--arithmetic", type=lambda text: text.split(","), default=["half", "short"])
    parser.add_argument("--fasta")
    parser.add_argument("--queries")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--sample", type=int, default=2000)
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if not options.lengths:
        tiles = [*range(32, 513, 32), *range(576, 1025, 64), *range(1152, 2049, 128)]
        options.lengths = tiles if options.tune else [128, 256, 512, 1024, 2048]
    with tempfile.TemporaryDirectory() as temporary:
        cache = options.cache or Path(temporary)
        if options.tune:
            tune(options, cache)
        elif options.fasta:
            on_real(options, cache)
        else:
            on_random(options, cache)


if __name__ == "__main__":
    main()
