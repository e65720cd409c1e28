"""Cell updates per second of the gapless filter on a GPU, by events around the kernels, and that it is right.

    python benchmarks/gapless_gpu.py [--lengths 128,256,512,1024,2048] [--targets 2000000]
    python benchmarks/gapless_gpu.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]
    python benchmarks/gapless_gpu.py --tune bounds

Random: targets of the query's length, residues uniform over the twenty; profiles of random queries as a
search makes them. Real: the targets as often as asked for and queries with their lengths as they come. Rows:
bounds; exact scores; exact scores of a list; with `--top N` the exact N best out, from bounds and lists. A
sample is compared with the CPU engine: bounds must be no less, exact scores equal. Beside TCUPS (10¹² cells,
query residues × target residues, per second; padding not counted) stands the share of the shared-memory wall
of exact scores: 128 bytes a clock and multiprocessor, two bytes a cell. `--tune` times every layout and
prints a launch table.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless import UNBOUNDED, GaplessBounds, GaplessFilter
from cuda.alignment.gapless.tune import LENGTHS, seconds, tune
from msa.alphabet import PAD, encode
from msa.cpu.gapless import gapless_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import read_fasta
from msa.profile.pssm import query_profile
from msa.search.engine import best_targets

_SMALLEST = 15


class Resident:
    """Targets on the CPU and on the GPU, with room for what is found."""

    def __init__(self, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, listed: int) -> None:
        self.host = SequenceArrays(residues, offsets, lengths)
        self.arrays = [cuda.to_device(np.ascontiguousarray(a)) for a in (residues, offsets, lengths)]
        count = len(lengths)
        self.bounds = cuda.device_array(count, np.int16)
        self.scores, self.rescored = (cuda.device_array(count, np.int32) for _ in range(2))
        self.residues = int(lengths.sum(dtype=np.int64))
        rng = np.random.default_rng(0)
        self.sample = np.unique(np.r_[0, count - 1, rng.integers(0, count, listed)])
        chosen = np.zeros(count + 1, np.int32)
        chosen[: len(self.sample) + 1] = [len(self.sample), *self.sample]
        self.listed = cuda.to_device(chosen)
        self.listed_residues = int(lengths[self.sample].sum(dtype=np.int64))

    def expected(self, profile: np.ndarray, threads: int) -> np.ndarray:
        """Scores of the sample by the CPU engine."""
        part = SequenceArrays(
            self.host.residues, self.host.offsets[self.sample], self.host.lengths[self.sample]
        )
        return gapless_scores(profile, part, threads)


class Row:
    """A line of the table: time and cells summed over queries, and comparisons with the CPU engine."""

    def __init__(self, label: str) -> None:
        self.label, self.seconds, self.cells = label, 0.0, 0
        self.right, self.compared = 0, 0

    def add(self, took: float, cells: int, right: np.ndarray | None) -> None:
        self.seconds += took
        self.cells += cells
        if right is not None:
            self.right += int(right.sum())
            self.compared += right.size

    def show(self, relation: str) -> None:
        speed = self.cells / self.seconds / 1e12
        print(
            f"{self.label:28s} {self.seconds * 1e3:10.3f} ms  {speed:6.2f} TCUPS  {speed / wall():5.2f} of "
            f"the wall ({wall():.1f})  {self.right} of {self.compared} {relation} the CPU's",
            flush=True,
        )


def wall() -> float:
    """TCUPS at which every load of two bytes a cell comes from shared memory without a pause."""
    device: Any = cuda.get_current_device()
    return device.MULTIPROCESSOR_COUNT * device.CLOCK_RATE * 1e3 * 64 / 1e12


def after_other_work(busy: Callable[[], None], queue: Callable[[], None], repeats: int) -> float:
    """Seconds of work that is queued while the GPU is busy, as it is in a search: no launch is waited for."""
    best = float("inf")
    for _ in range(repeats):
        start, end = cuda.event(), cuda.event()
        busy()
        start.record()
        queue()
        end.record()
        end.synchronize()
        best = min(best, cuda.event_elapsed_time(start, end) / 1e3)
    return best


class Bench:
    """The rows of one set of targets."""

    def __init__(self, label: str, targets: Resident, options: argparse.Namespace, cache: Path) -> None:
        self._targets, self._options, self._cache = targets, options, cache
        self.rows = {
            "bounds": Row(f"{label}, bounds"),
            **{kind: Row(f"{label}, exact {kind}") for kind in options.arithmetic},
            "list": Row(f"{label}, list of {len(targets.sample)}"),
        }
        if options.top:
            self.rows["top"] = Row(f"{label}, exact top {options.top}")

    def query(self, profile: np.ndarray, repeats: int, compare: bool) -> None:
        targets, cells = self._targets, len(profile) * self._targets.residues
        expected = targets.expected(profile, self._options.threads) if compare else None
        bounds = GaplessBounds(profile, self._cache)

        def bound() -> None:
            bounds.bounds(*targets.arrays, targets.bounds)

        bound()
        took, right = seconds(bound, repeats), None
        if expected is not None:
            right = targets.bounds.copy_to_host()[targets.sample] >= np.minimum(expected, UNBOUNDED)
        self.rows["bounds"].add(took, cells, right)
        for kind in self._options.arithmetic:
            exact = GaplessFilter(profile, self._cache, kind)
            exact.scores(*targets.arrays, targets.scores)
            took = seconds(lambda: exact.scores(*targets.arrays, targets.scores), repeats)  # noqa: B023
            if expected is not None:
                right = targets.scores.copy_to_host()[targets.sample] == expected
            self.rows[kind].add(took, cells, right)
        some = GaplessFilter(profile, self._cache)

        def rescore() -> None:
            some.rescore(*targets.arrays, targets.listed, targets.rescored)

        rescore()
        took = after_other_work(bound, rescore, repeats)
        if expected is not None:
            right = targets.rescored.copy_to_host()[: len(expected)] == expected
        self.rows["list"].add(took, len(profile) * targets.listed_residues, right)
        if self._options.top:
            self.rows["top"].add(*self._top(profile, repeats, compare))

    def _top(self, profile: np.ndarray, repeats: int, compare: bool) -> tuple[float, int, np.ndarray | None]:
        from cuda.alignment.top_k import BestTargets, QueryFilter, read_row, row_numbers

        targets, most = self._targets, self._options.top
        query = QueryFilter(profile, self._cache)
        best = BestTargets(most, _SMALLEST, len(targets.host), 0)
        found = cuda.device_array(row_numbers(most), np.int32)

        def find() -> None:
            best.find(query, *targets.arrays, found)

        find()
        took, right = seconds(find, repeats), None
        if compare:
            GaplessFilter(profile, self._cache).scores(*targets.arrays, targets.scores)
            places, exact = read_row(found.copy_to_host())
            scores = targets.scores.copy_to_host()
            same = sorted(places.tolist()) == sorted(best_targets(scores, most, _SMALLEST).tolist())
            right = np.array([same and exact.tolist() == scores[places].tolist()])
        return took, len(profile) * targets.residues, right

    def show(self) -> None:
        for name, row in self.rows.items():
            row.show({"bounds": "no less than", "top": "lists equal to"}.get(name, "equal to"))


def in_order(records: list[np.ndarray], times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residues, offsets and lengths as a database has them."""
    records = sorted(records, key=len)
    lengths = np.repeat(np.array([len(r) for r in records], np.int32), times)
    room = (lengths.astype(np.int64) + 3) // 4 * 4
    padded = [np.append(r, np.full(-len(r) % 4, PAD, np.uint8)) for r in records]
    return np.concatenate([r for r in padded for _ in range(times)]), np.cumsum(room) - room, lengths


def on_random(options: argparse.Namespace, cache: Path) -> None:
    rng = np.random.default_rng(1)
    for length in options.lengths:
        room = (length + 3) // 4 * 4
        count = min(options.targets, 2**32 // room)
        residues = rng.integers(0, 20, (count, room), dtype=np.uint8)
        residues[:, length:] = PAD
        offsets = np.arange(count, dtype=np.int64) * room
        lengths = np.full(count, length, np.int32)
        bench = Bench(
            f"random {length}",
            Resident(residues.reshape(-1), offsets, lengths, options.listed),
            options,
            cache,
        )
        bench.query(query_profile(rng.integers(0, 20, length).astype(np.uint8)), 4, True)
        bench.show()


def on_real(options: argparse.Namespace, cache: Path) -> None:
    records = [encode(r.sequence) for r in read_fasta(options.fasta)]
    targets = Resident(*in_order(records, options.times), options.listed)
    profiles = [query_profile(encode(r.sequence)) for r in read_fasta(options.queries)][: options.count]
    print(f"{len(targets.host)} targets, {targets.residues} residues, {len(profiles)} queries", flush=True)
    bench = Bench("real", targets, options, cache)
    for k, profile in enumerate(profiles):
        bench.query(profile, 1, k % options.check_every == 0)
    bench.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--targets", type=int, default=2_000_000)
    parser.add_argument("--arithmetic", nargs="*", default=["half", "short"])
    parser.add_argument("--fasta")
    parser.add_argument("--queries")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--listed", type=int, default=3000, help="targets of a list, and of comparisons")
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--tune", choices=["bounds", "exact"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        cache = options.cache or Path(temporary)
        if options.tune:
            lengths = options.lengths or LENGTHS[options.tune]
            rows = tune(lengths, options.targets, cache, lambda text: print(text, flush=True), options.tune)
            print(json.dumps({options.tune: rows}))
            return
        options.lengths = options.lengths or [128, 256, 512, 1024, 2048]
        (on_real if options.fasta else on_random)(options, cache)


if __name__ == "__main__":
    main()
