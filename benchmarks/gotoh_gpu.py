"""Speed of Gotoh alignment on the GPU in cell updates per second.

The pairs are real: each query with its best targets by gapless score. Scores and ends are compared with the
CPU engine's; any difference is an error.

    python benchmarks/gotoh_gpu.py DATABASE.fasta QUERIES.fasta [--count 500] [--targets 4000]

Prints GCUPS (10⁹ cells, query residues × target residues, per second): of the kernels alone (CUDA events,
median of the repeats), and of whole calls with host work and copies.

--count: number of queries; --compared: number of queries whose targets are all compared; --kernels: folder
that keeps compiled kernels.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import cuda
from options import parse_options

from cuda.alignment import DeviceSequences
from cuda.alignment.smith_waterman import Pairs, end_positions
from cuda.alignment.smith_waterman.generator import STARTS
from cuda.alignment.smith_waterman.plan import available_shapes
from cuda.alignment.smith_waterman.row_launcher import PreparedRows, RowLauncher
from msa.alphabet import encode
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.database.cached_databases import open_or_build_database
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.filtered_targets import best_targets
from msa.hits.local_alignments import local_alignment
from msa.io.fasta import read_fasta
from msa.profile.pssm import query_profile


def event_seconds(work: Callable[[], None], repeats: int = 5) -> float:
    """Return the median GPU time in seconds."""
    times = []
    for _ in range(repeats + 1):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times[1:])


def pairs_of(best: list[np.ndarray], targets: SequenceArrays, max_targets: int) -> Pairs:
    kept = [indices[:max_targets] for indices in best]
    query = np.repeat(np.arange(len(kept), dtype=np.int32), [len(indices) for indices in kept])
    target = np.concatenate(kept)
    return Pairs(query, target, targets.lengths[target])


def gigacells(profiles: list[np.ndarray], pairs: Pairs) -> float:
    lengths = np.array([len(profile) for profile in profiles])
    return float((lengths[pairs.query] * pairs.length).sum()) / 1e9


def time_launches(rows: RowLauncher, prepared: PreparedRows) -> float:
    """Print the time of each launch; return their sum in seconds."""
    total = 0.0
    for k, launch in enumerate(prepared.launches):
        seconds = event_seconds(lambda k=k: rows.launch(prepared, k, 0))  # type: ignore[misc]
        total += seconds
        print(
            f"{launch.kind:7s} {launch.shape.lanes:2d} lanes × {launch.shape.columns:2d} columns: "
            f"{len(launch.queries):3d} queries, {launch.blocks:6d} blocks, {seconds * 1e3:8.2f} ms"
        )
    return total


def main() -> None:
    options = parse_options(
        __doc__, "database", "queries", count=500, targets=4000, compared=20, kernels=Path
    )  # fmt: skip
    threads = os.cpu_count() or 1
    codes = [encode(record.sequence) for record in read_fasta(options.queries)][: options.count]
    profiles = [query_profile(query) for query in codes]
    results = []
    with tempfile.TemporaryDirectory() as name:
        database = open_or_build_database(options.database, Path(name), None)
        targets = database.arrays
        device = DeviceSequences(
            cuda.to_device(np.array(targets.residues)),
            cuda.to_device(np.array(targets.offsets)),
            cuda.to_device(np.array(targets.lengths)),
        )
        best = [
            best_targets(gapless_scores(profile, targets, threads), options.targets, 15)
            for profile in profiles
        ]
        pairs = pairs_of(best, targets, options.targets)
        total = gigacells(profiles, pairs)
        begin = time.perf_counter()
        ends = end_positions(profiles, device, pairs, kernels=options.kernels)
        print(f"first call, compilation included: {time.perf_counter() - begin:.1f} s")
        rows = RowLauncher(profiles, device, 11, 1, available_shapes(), 0, options.kernels, cuda.device_array)
        device_ends = rows.allocate_ends(len(pairs))
        if rows.shapes.packed:
            prepared, _ = rows.prepare_packed(pairs, device_ends)
            sequential = time_launches(rows, prepared)
            results.append(("score and end, packed kernels in sequence", total, sequential))
            concurrent = event_seconds(lambda: rows.run(prepared))
            results.append(("score and end, packed kernels in parallel", total, concurrent))
        starts, border = rows.upload(np.zeros((len(pairs), STARTS)), np.int64), rows.empty(2)
        if rows.lengths.max() <= rows.shapes.wide[-1].width:
            wide = rows.prepare_wide("wide", pairs, device_ends, starts, border, border)
            results.append(("score and end, 32-bit kernels", total, event_seconds(lambda: rows.run(wide))))
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            end_positions(profiles, device, pairs, kernels=options.kernels)
            times.append(time.perf_counter() - begin)
        whole = statistics.median(times)
        results.append((f"score and end of {len(pairs)} pairs, whole call", total, whole))

        compared = 0
        for q in range(min(options.compared, len(profiles))):
            of_query = np.flatnonzero(pairs.query == q)
            paths = align(profiles[q], codes[q], targets, pairs.target[of_query], threads=threads)
            for index, k in enumerate(of_query.tolist()):
                one = local_alignment(paths, index)
                assert ends[k].tolist() == [one.score, one.query_end - 1, one.target_end - 1]
                compared += 1
        print(f"{compared} scores and ends equal the CPU's")

    lengths = np.array([len(query) for query in codes])
    print(
        f"{len(profiles)} queries of {lengths.mean():.0f} residues, {len(pairs)} pairs, "
        f"targets of {pairs.length.mean():.0f} (means)"
    )
    for label, count, seconds in results:
        print(f"{label:55s} {count:8.2f} G cells {seconds:8.3f} s {count / seconds:8.0f} GCUPS")


if __name__ == "__main__":
    main()
