"""Speed and correctness of the gapless filter on a GPU; times are measured by events around the kernels.

    python benchmarks/gapless_gpu.py [--lengths 128,256,512,1024,2048] [--targets 2000000]
    python benchmarks/gapless_gpu.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]

Without `--fasta`, targets have the query's length and uniformly distributed residues, and profiles are those
of random queries. With it, the targets of the file are repeated `--times` times. Rows of the output: bounds;
exact scores of a list. A sample is compared with the CPU engine: bounds must not be smaller,
exact scores must be equal. Each row shows TCUPS (10¹² cells, query residues × target residues, per second,
without padding) and the fraction of the shared-memory limit of exact scores: 128 bytes per clock and
multiprocessor, two bytes per cell. `foldcli bench --tune` finds launches.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import cuda

from cuda.alignment import DeviceSequences
from cuda.alignment.gapless import UNBOUNDED, GaplessBounder, ListScorer, TargetLists
from cuda.alignment.gapless.lists import LISTED, STATE_SIZE, STRETCHES
from msa.alphabet import PAD, encode
from msa.cpu.gapless import gapless_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.gapless_benchmark import min_seconds, shared_memory_limit
from msa.io.fasta import read_fasta
from msa.profile.pssm import query_profile


class BenchmarkTargets:
    """Targets on the CPU and on the GPU, with memory for results."""

    def __init__(self, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, listed: int) -> None:
        self.host = SequenceArrays(residues, offsets, lengths)
        arrays = (residues, offsets, lengths)
        self.on_gpu = DeviceSequences(*(cuda.to_device(np.ascontiguousarray(array)) for array in arrays))
        count = len(lengths)
        self.bounds = cuda.device_array(count, np.int16)
        self.residues = int(lengths.sum(dtype=np.int64))
        rng = np.random.default_rng(0)
        self.sample = np.unique(np.r_[0, count - 1, rng.integers(0, count, listed)])
        self.listed_residues = int(lengths[self.sample].sum(dtype=np.int64))

    def lists(self, stretch: int) -> TargetLists:
        """Return the list of the sample for one query, cut into stretches and not yet scored."""
        ends = np.cumsum(-(-self.host.lengths[self.sample] // stretch))
        state = np.zeros(STATE_SIZE, np.int32)
        state[[LISTED, STRETCHES]] = len(ends), ends[-1]
        arrays = self.sample, np.zeros(len(ends)), ends, state
        return TargetLists(*(cuda.to_device(array.astype(np.int32)[None]) for array in arrays))

    def expected(self, profile: np.ndarray, threads: int) -> np.ndarray:
        """Compute the scores of the sample with the CPU engine."""
        part = SequenceArrays(
            self.host.residues, self.host.offsets[self.sample], self.host.lengths[self.sample]
        )
        return gapless_scores(profile, part, threads)


class Row:
    """A row of the output: time and cells summed over queries, and comparisons with the CPU engine."""

    def __init__(self, label: str) -> None:
        self.label, self.seconds, self.cells = label, 0.0, 0
        self.correct, self.compared = 0, 0

    def add(self, seconds: float, cells: int, correct: np.ndarray | None) -> None:
        """Add a measurement."""
        self.seconds += seconds
        self.cells += cells
        if correct is not None:
            self.correct += int(correct.sum())
            self.compared += correct.size

    def print(self, relation: str) -> None:
        """Print the row."""
        speed, limit = self.cells / self.seconds / 1e12, shared_memory_limit()
        print(
            f"{self.label:28s} {self.seconds * 1e3:10.3f} ms  {speed:6.2f} TCUPS  {speed / limit:5.2f} of "
            f"the limit ({limit:.1f})  {self.correct} of {self.compared} {relation} the CPU's",
            flush=True,
        )


def min_seconds_when_busy(busy: Callable[[], None], queue: Callable[[], None], repeats: int) -> float:
    """Return the shortest time of work that is queued while the GPU is busy, as in a search."""
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


class Benchmark:
    """The rows of one set of targets."""

    def __init__(
        self, label: str, targets: BenchmarkTargets, options: argparse.Namespace, cache: Path
    ) -> None:
        self._targets, self._options, self._cache = targets, options, cache
        self.rows = {
            "bounds": Row(f"{label}, bounds"),
            "list": Row(f"{label}, list of {len(targets.sample)}"),
        }

    def query(self, profile: np.ndarray, repeats: int, compare: bool) -> None:
        """Measure all rows for one query."""
        targets, cells = self._targets, len(profile) * self._targets.residues
        expected = targets.expected(profile, self._options.threads) if compare else None
        bounder = GaplessBounder(profile, self._cache)

        def bound() -> None:
            bounder.bound_all(targets.on_gpu, targets.bounds)

        bound()
        seconds, correct = min_seconds(bound, repeats), None
        if expected is not None:
            correct = targets.bounds.copy_to_host()[targets.sample] >= np.minimum(expected, UNBOUNDED)
        self.rows["bounds"].add(seconds, cells, correct)
        list_scorer = ListScorer([profile], self._cache)
        lists = targets.lists(list_scorer.stretch)

        def score_listed() -> None:
            list_scorer.score(targets.on_gpu, lists)

        score_listed()
        seconds = min_seconds_when_busy(bound, score_listed, repeats)
        if expected is not None:
            correct = lists.scores.copy_to_host()[0] == expected
        self.rows["list"].add(seconds, len(profile) * targets.listed_residues, correct)

    def print(self) -> None:
        """Print all rows."""
        for name, row in self.rows.items():
            row.print("no less than" if name == "bounds" else "equal to")


def repeated_by_length(records: list[np.ndarray], times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return residues, offsets and lengths as in a database, with each record repeated."""
    records = sorted(records, key=len)
    lengths = np.repeat(np.array([len(r) for r in records], np.int32), times)
    strides = (lengths.astype(np.int64) + 3) // 4 * 4
    padded = [np.append(r, np.full(-len(r) % 4, PAD, np.uint8)) for r in records]
    return np.concatenate([r for r in padded for _ in range(times)]), np.cumsum(strides) - strides, lengths


def run_random(options: argparse.Namespace, cache: Path) -> None:
    rng = np.random.default_rng(1)
    for length in options.lengths:
        stride = (length + 3) // 4 * 4
        count = min(options.targets, 2**32 // stride)
        residues = rng.integers(0, 20, (count, stride), dtype=np.uint8)
        residues[:, length:] = PAD
        offsets = np.arange(count, dtype=np.int64) * stride
        lengths = np.full(count, length, np.int32)
        benchmark = Benchmark(
            f"random {length}",
            BenchmarkTargets(residues.reshape(-1), offsets, lengths, options.listed),
            options,
            cache,
        )
        benchmark.query(query_profile(rng.integers(0, 20, length).astype(np.uint8)), 4, True)
        benchmark.print()


def run_real(options: argparse.Namespace, cache: Path) -> None:
    records = [encode(r.sequence) for r in read_fasta(options.fasta)]
    targets = BenchmarkTargets(*repeated_by_length(records, options.times), options.listed)
    profiles = [query_profile(encode(r.sequence)) for r in read_fasta(options.queries)][: options.count]
    print(f"{len(targets.host)} targets, {targets.residues} residues, {len(profiles)} queries", flush=True)
    benchmark = Benchmark("real", targets, options, cache)
    for k, profile in enumerate(profiles):
        benchmark.query(profile, 1, k % options.check_every == 0)
    benchmark.print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--targets", type=int, default=2_000_000)
    parser.add_argument("--fasta")
    parser.add_argument("--queries")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--listed", type=int, default=3000, help="targets per list and comparison")
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("--threads", type=int, default=16)
    options = parser.parse_args()
    options.lengths = options.lengths or [128, 256, 512, 1024, 2048]
    with tempfile.TemporaryDirectory() as cache:
        (run_real if options.fasta else run_random)(options, Path(cache))


if __name__ == "__main__":
    main()
