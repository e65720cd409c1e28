"""Speed and correctness of the gapless filter on a GPU; times are measured by events around the kernels.

    python benchmarks/gapless_gpu.py [--lengths 128 256 512 1024 2048] [--targets 2000000]
    python benchmarks/gapless_gpu.py --fasta TARGETS.fasta --queries QUERIES.fasta [--times 16]

Without `--fasta`, targets have the query's length and uniformly distributed residues, and profiles are those
of random queries. With it, the targets of the file are repeated `--times` times. A sample of the bounds is
compared with the CPU engine's scores, which must not be larger. Each row shows TCUPS (10¹² cells, query
residues × target residues, per second, without padding) and the fraction of the shared-memory limit of exact
scores: 128 bytes per clock and multiprocessor, two bytes per cell. `foldcli bench --tune` finds launches.

--compared: targets per comparison; --check-every: compare each n-th query.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numba import cuda
from options import parse_options

from cuda.alignment import DeviceSequences
from cuda.alignment.gapless import UNBOUNDED, GaplessBounder
from msa.alphabet import PAD, encode
from msa.cpu.gapless import gapless_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.gapless_tuning import min_seconds, shared_memory_limit
from msa.io.fasta import read_fasta
from msa.profile.pssm import query_profile


class BenchmarkTargets:
    """Targets on the CPU and on the GPU, with memory for results."""

    def __init__(self, residues: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, compared: int) -> None:
        self.host = SequenceArrays(residues, offsets, lengths)
        arrays = (residues, offsets, lengths)
        self.on_gpu = DeviceSequences(*(cuda.to_device(np.ascontiguousarray(array)) for array in arrays))
        count = len(lengths)
        self.bounds = cuda.device_array(count, np.int16)
        self.residues = int(lengths.sum(dtype=np.int64))
        rng = np.random.default_rng(0)
        self.sample = np.unique(np.r_[0, count - 1, rng.integers(0, count, compared)])


class Row:
    """A row of the output: time and cells summed over queries, and comparisons with the CPU engine."""

    def __init__(self, label: str, targets: BenchmarkTargets, threads: int, cache: Path) -> None:
        self._label, self._targets, self._threads, self._cache = label, targets, threads, cache
        self._seconds, self._cells, self._correct, self._compared = 0.0, 0, 0, 0

    def query(self, profile: np.ndarray, repeats: int, compare: bool) -> None:
        """Measure one query."""
        targets, bounder = self._targets, GaplessBounder(profile, self._cache)

        def bound() -> None:
            bounder.bound_all(targets.on_gpu, targets.bounds)

        bound()
        self._seconds += min_seconds(bound, repeats)
        self._cells += len(profile) * targets.residues
        if compare:
            expected = gapless_scores(profile, targets.host.gather(targets.sample), self._threads)
            correct = targets.bounds.copy_to_host()[targets.sample] >= np.minimum(expected, UNBOUNDED)
            self._correct += int(correct.sum())
            self._compared += correct.size

    def print(self) -> None:
        """Print the row."""
        speed, limit = self._cells / self._seconds / 1e12, shared_memory_limit()
        print(
            f"{self._label:28s} {self._seconds * 1e3:10.3f} ms  {speed:6.2f} TCUPS  {speed / limit:5.2f} of "
            f"the limit ({limit:.1f})  {self._correct} of {self._compared} no less than the CPU's",
            flush=True,
        )


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
        targets = BenchmarkTargets(residues.reshape(-1), offsets, lengths, options.compared)
        row = Row(f"random {length}", targets, options.threads, cache)
        row.query(query_profile(rng.integers(0, 20, length).astype(np.uint8)), 4, True)
        row.print()


def run_real(options: argparse.Namespace, cache: Path) -> None:
    records = [encode(r.sequence) for r in read_fasta(options.fasta)]
    targets = BenchmarkTargets(*repeated_by_length(records, options.times), options.compared)
    profiles = [query_profile(encode(r.sequence)) for r in read_fasta(options.queries)][: options.count]
    print(f"{len(targets.host)} targets, {targets.residues} residues, {len(profiles)} queries", flush=True)
    row = Row("real", targets, options.threads, cache)
    for k, profile in enumerate(profiles):
        row.query(profile, 1, k % options.check_every == 0)
    row.print()


def main() -> None:
    options = parse_options(
        __doc__, lengths=[128, 256, 512, 1024, 2048], targets=2_000_000, fasta=Path, queries=Path, count=500,
        times=16, compared=3000, check_every=10, threads=16
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        (run_real if options.fasta else run_random)(options, Path(cache))


if __name__ == "__main__":
    main()
