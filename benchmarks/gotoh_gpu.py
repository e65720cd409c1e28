"""Speed of Gotoh alignment on the GPU: cell updates per second, and milliseconds per batch.

The pairs are real: each query with its best targets by gapless score. Scores, ends and paths are compared
with the CPU engine's; any difference is an error.

    python benchmarks/gotoh_gpu.py DATABASE.fasta QUERIES.fasta [--queries 500] [--targets 4000]

Prints GCUPS (10⁹ cells, query residues × target residues, per second): of the kernels alone (CUDA events,
median of the repeats), and of whole calls with host work and copies. Then, for batches of queries as in a
search, the milliseconds to score all candidates and to trace the best ones.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import cuda

from cuda.alignment import AlignmentPaths, DeviceSequences
from cuda.alignment.smith_waterman import Pairs, end_positions, trace_paths
from cuda.alignment.smith_waterman.generator import STARTS
from cuda.alignment.smith_waterman.plan import available_shapes
from cuda.alignment.smith_waterman.row_launcher import PreparedRows, RowLauncher
from msa.alphabet import encode
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.database.build import open_or_build_database
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import best_targets
from msa.engines.hits import LocalAlignment, local_alignments
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


def wall_seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Return the median wall time in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


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


def check_path(paths: AlignmentPaths, k: int, expected: LocalAlignment) -> None:
    record, runs = paths.records[k].tolist(), paths.runs[slice(*paths.run_offsets[k : k + 2])]
    if expected.score:
        assert record == [
            expected.score, expected.query_start - 1, expected.query_end - 1, expected.target_start - 1,
            expected.target_end - 1, expected.identities, expected.columns, len(expected.runs),
        ]  # fmt: skip
    else:
        assert not any(record)
    assert np.array_equal(runs, expected.runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
    parser.add_argument("--queries", dest="count", type=int, default=500)
    parser.add_argument("--targets", type=int, default=4000)
    parser.add_argument(
        "--compared", type=int, default=20, help="number of queries whose targets are all compared"
    )
    parser.add_argument("--batch", type=int, default=32, help="queries per batch")
    parser.add_argument("--candidates", type=int, default=300, help="targets scored per query")
    parser.add_argument("--kernels", type=Path, help="folder that keeps compiled kernels")
    parser.add_argument("--hits", type=int, default=100, help="targets traced per query")
    options = parser.parse_args()
    threads = os.cpu_count() or 1
    codes = [encode(record.sequence) for record in read_fasta(options.queries)][: options.count]
    profiles = [query_profile(query) for query in codes]
    results = []
    with tempfile.TemporaryDirectory() as name:
        database = open_or_build_database(Path(options.database), Path(name), None)
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
        whole = wall_seconds(lambda: end_positions(profiles, device, pairs, kernels=options.kernels), 3)
        results.append((f"score and end of {len(pairs)} pairs, whole call", total, whole))

        compared = 0
        for q in range(min(options.compared, len(profiles))):
            of_query = np.flatnonzero(pairs.query == q)
            expected = local_alignments(
                align(profiles[q], codes[q], targets, pairs.target[of_query], threads=threads)
            )
            for k, one in zip(of_query.tolist(), expected, strict=True):
                assert ends[k].tolist() == [one.score, one.query_end - 1, one.target_end - 1]
                compared += 1
        print(f"{compared} scores and ends equal the CPU's")

        compared, cpu_seconds, scored, traced, splits = 0, 0.0, [], [], []
        candidates = pairs_of(best, targets, options.candidates)
        for first in range(0, len(profiles), options.batch):
            batch = profiles[first : first + options.batch]
            batch_codes = codes[first : first + options.batch]
            part = candidates.subset(
                np.flatnonzero((candidates.query >= first) & (candidates.query < first + len(batch)))
            )
            part = Pairs(part.query - np.int32(first), part.target, part.length)
            ends = end_positions(batch, device, part, kernels=options.kernels)
            # the best of each query
            order = np.lexsort((-ends[:, 0], part.query))
            rank = np.arange(len(part)) - np.searchsorted(part.query[order], part.query[order])
            hits = np.sort(order[rank < options.hits])
            traced_pairs, traced_ends = part.subset(hits), ends[hits]
            trace_paths(batch, batch_codes, device, traced_pairs, traced_ends, kernels=options.kernels)
            scored.append(
                wall_seconds(lambda b=batch, p=part: end_positions(b, device, p, kernels=options.kernels), 5)
            )  # type: ignore[misc]
            traced.append(
                wall_seconds(
                    lambda b=batch, c=batch_codes, p=traced_pairs, e=traced_ends: trace_paths(
                        b, c, device, p, e, kernels=options.kernels
                    ),
                    5,
                )  # type: ignore[misc]
            )
            rows = RowLauncher(
                batch, device, 11, 1, available_shapes(), 0, options.kernels, cuda.device_array
            )
            if rows.shapes.packed:
                prepared, _ = rows.prepare_packed(part, rows.allocate_ends(len(part)))
                splits.append(event_seconds(lambda r=rows, p=prepared: r.run(p)))  # type: ignore[misc]
            paths = trace_paths(batch, batch_codes, device, part, ends, kernels=options.kernels)
            for q in range(len(batch)):
                of_query = np.flatnonzero(part.query == q)
                begin = time.perf_counter()
                expected = local_alignments(
                    align(batch[q], batch_codes[q], targets, part.target[of_query], threads=threads)
                )
                cpu_seconds += time.perf_counter() - begin
                for k, one in zip(of_query.tolist(), expected, strict=True):
                    check_path(paths, k, one)
                    compared += 1
        print(f"{compared} scores, ends and paths equal the CPU's")
    amount = gigacells(profiles, candidates)
    results.append((f"CPU engine, score, end and path, {threads} threads", amount, cpu_seconds))
    results.append((f"scores of the best {options.candidates}, in batches", amount, sum(scored)))
    lengths = np.array([len(query) for query in codes])
    print(
        f"{len(profiles)} queries of {lengths.mean():.0f} residues, {len(pairs)} pairs, "
        f"targets of {pairs.length.mean():.0f} (means)"
    )
    for label, count, seconds in results:
        print(f"{label:55s} {count:8.2f} G cells {seconds:8.3f} s {count / seconds:8.0f} GCUPS")
    print(f"batch of {options.batch} queries, median and maximum of {len(scored)} batches, ms:")
    both = [a + b for a, b in zip(scored, traced, strict=True)]
    for label, times in (
        (f"score and end of {options.candidates} candidates each, whole call", scored),
        ("of that, kernels alone", splits),
        (f"paths of {options.hits} hits each, whole call", traced),
        ("both", both),
    ):
        if times:
            print(f"    {label:50s} {statistics.median(times) * 1e3:8.2f} {max(times) * 1e3:8.2f}")


if __name__ == "__main__":
    main()
