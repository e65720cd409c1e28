"""Gotoh alignment on the GPU beside the CPU engine: cell updates per second, and milliseconds for a batch.

The pairs are real: each query with its best targets by gapless score. Scores, ends and paths are compared
with the CPU engine's; any difference ends the run with an error.

    python benchmarks/gotoh_gpu.py DATABASE.fasta QUERIES.fasta [--queries 500] [--targets 4000]

Prints GCUPS (10⁹ cells, query residues × target residues, per second): of the kernels alone (CUDA events,
median of the repeats), and of whole calls, host work and copies included. Then, for batches of queries as a
search makes them, the milliseconds of scoring all candidates and tracing the best of them.
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

from cuda.alignment.smith_waterman import Alignments, DeviceTargets, Pairs, Query, end_positions, trace_paths
from cuda.alignment.smith_waterman.rows import Prepared, Rows, device_array
from cuda.alignment.smith_waterman.shapes import available_shapes
from cuda.alignment.smith_waterman.source import STARTS
from msa.alphabet import encode
from msa.cpu.gapless import gapless_scores
from msa.cpu.smith_waterman import align
from msa.database.build import open_or_build_database
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import read_fasta
from msa.profile.pssm import query_profile
from msa.search.engine import best_targets
from msa.search.hits import LocalAlignment


def event_seconds(work: Callable[[], None], repeats: int = 5) -> float:
    """Median GPU time."""
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
    """Median time."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def pairs_of(chosen: list[np.ndarray], targets: SequenceArrays, most: int) -> Pairs:
    kept = [indices[:most] for indices in chosen]
    query = np.repeat(np.arange(len(kept), dtype=np.int32), [len(indices) for indices in kept])
    target = np.concatenate(kept)
    return Pairs(query, target, targets.lengths[target])


def cells(queries: list[Query], pairs: Pairs) -> float:
    lengths = np.array([len(query.codes) for query in queries])
    return float((lengths[pairs.query] * pairs.length).sum()) / 1e9


def by_shape(rows: Rows, queries: list[Query], pairs: Pairs, prepared: Prepared) -> float:
    """Print the speed of each launch; their seconds one after the other."""
    total = 0.0
    for k, launch in enumerate(prepared.launches):
        taken = event_seconds(lambda k=k: rows.launch(prepared, k, 0))  # type: ignore[misc]
        total += taken
        print(
            f"{launch.kind:7s} {launch.shape.lanes:2d} lanes × {launch.shape.columns:2d} columns: "
            f"{len(launch.queries):3d} queries, {launch.blocks:6d} blocks, {taken * 1e3:8.2f} ms"
        )
    return total


def check_path(found: Alignments, place: int, expected: LocalAlignment) -> None:
    row, runs = found.found[place].tolist(), found.runs[slice(*found.starts[place : place + 2])]
    if expected.score:
        assert row == [
            expected.score, expected.query_start - 1, expected.query_end - 1, expected.target_start - 1,
            expected.target_end - 1, expected.identities, expected.columns, len(expected.runs),
        ]  # fmt: skip
    else:
        assert not any(row)
    assert np.array_equal(runs, expected.runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
    parser.add_argument("--queries", dest="count", type=int, default=500)
    parser.add_argument("--targets", type=int, default=4000)
    parser.add_argument("--compared", type=int, default=20, help="queries all of whose targets are compared")
    parser.add_argument("--batch", type=int, default=32, help="queries of a batch")
    parser.add_argument("--candidates", type=int, default=300, help="targets of each that are scored")
    parser.add_argument("--kernels", type=Path, help="folder that keeps compiled kernels")
    parser.add_argument("--hits", type=int, default=100, help="of those, how many are traced")
    options = parser.parse_args()
    threads = os.cpu_count() or 1
    codes = [encode(record.sequence) for record in read_fasta(options.queries)][: options.count]
    queries = [Query(query_profile(query), query) for query in codes]
    results = []
    with tempfile.TemporaryDirectory() as name:
        database = open_or_build_database(Path(options.database), Path(name), None)
        targets = database.arrays
        device = DeviceTargets(
            cuda.to_device(np.array(targets.residues)),
            cuda.to_device(np.array(targets.offsets)),
            cuda.to_device(np.array(targets.lengths)),
        )
        chosen = [
            best_targets(gapless_scores(query.profile, targets, threads), options.targets, 15)
            for query in queries
        ]
        pairs = pairs_of(chosen, targets, options.targets)
        total = cells(queries, pairs)
        begin = time.perf_counter()
        ends = end_positions(queries, device, pairs, kernels=options.kernels)
        print(f"first call, compilation included: {time.perf_counter() - begin:.1f} s")
        rows = Rows(queries, device, 11, 1, available_shapes(), 0, options.kernels, device_array)
        found = rows.found(len(pairs))
        if rows.shapes.packed:
            prepared, _ = rows.packed(pairs, found)
            apart = by_shape(rows, queries, pairs, prepared)
            results.append(("score and end, packed kernels one after the other", total, apart))
            together = event_seconds(lambda: rows.run(prepared))
            results.append(("score and end, packed kernels side by side", total, together))
        starts, border = rows.upload(np.zeros((len(pairs), STARTS)), np.int64), rows.empty(2)
        if rows.lengths.max() <= rows.shapes.wide[-1].width:
            wide = rows.wide("wide", pairs, found, starts, border, border)
            results.append(("score and end, 32-bit kernels", total, event_seconds(lambda: rows.run(wide))))
        whole = wall_seconds(lambda: end_positions(queries, device, pairs, kernels=options.kernels), 3)
        results.append((f"score and end of {len(pairs)} pairs, whole call", total, whole))

        compared = 0
        for q in range(min(options.compared, len(queries))):
            here = np.flatnonzero(pairs.query == q)
            expected = align(queries[q].profile, codes[q], targets, pairs.target[here], threads=threads)
            for place, one in zip(here.tolist(), expected, strict=True):
                assert ends[place].tolist() == [one.score, one.query_end - 1, one.target_end - 1]
                compared += 1
        print(f"{compared} scores and ends equal the CPU's")

        compared, cpu_seconds, scored, traced, splits = 0, 0.0, [], [], []
        candidates = pairs_of(chosen, targets, options.candidates)
        for first in range(0, len(queries), options.batch):
            batch = queries[first : first + options.batch]
            part = candidates.part(
                np.flatnonzero((candidates.query >= first) & (candidates.query < first + len(batch)))
            )
            part = Pairs(part.query - np.int32(first), part.target, part.length)
            ends = end_positions(batch, device, part, kernels=options.kernels)
            # the best of each query
            order = np.lexsort((-ends[:, 0], part.query))
            rank = np.arange(len(part)) - np.searchsorted(part.query[order], part.query[order])
            hits = np.sort(order[rank < options.hits])
            wanted, wanted_ends = part.part(hits), ends[hits]
            trace_paths(batch, device, wanted, wanted_ends, kernels=options.kernels)
            scored.append(
                wall_seconds(lambda b=batch, p=part: end_positions(b, device, p, kernels=options.kernels), 5)
            )  # type: ignore[misc]
            traced.append(
                wall_seconds(
                    lambda b=batch, p=wanted, e=wanted_ends: trace_paths(
                        b, device, p, e, kernels=options.kernels
                    ),
                    5,
                )  # type: ignore[misc]
            )
            rows = Rows(batch, device, 11, 1, available_shapes(), 0, options.kernels, device_array)
            if rows.shapes.packed:
                prepared, _ = rows.packed(part, rows.found(len(part)))
                splits.append(event_seconds(lambda r=rows, p=prepared: r.run(p)))  # type: ignore[misc]
            paths = trace_paths(batch, device, part, ends, kernels=options.kernels)
            for q in range(len(batch)):
                here = np.flatnonzero(part.query == q)
                begin = time.perf_counter()
                expected = align(
                    batch[q].profile, batch[q].codes, targets, part.target[here], threads=threads
                )
                cpu_seconds += time.perf_counter() - begin
                for place, one in zip(here.tolist(), expected, strict=True):
                    check_path(paths, place, one)
                    compared += 1
        print(f"{compared} scores, ends and paths equal the CPU's")
    amount = cells(queries, candidates)
    results.append((f"CPU engine, score, end and path, {threads} threads", amount, cpu_seconds))
    results.append((f"scores of the best {options.candidates}, batch by batch", amount, sum(scored)))
    lengths = np.array([len(query) for query in codes])
    print(
        f"{len(queries)} queries of {lengths.mean():.0f} residues, {len(pairs)} pairs, "
        f"targets of {pairs.length.mean():.0f} (means)"
    )
    for what, gigacells, seconds in results:
        print(f"{what:55s} {gigacells:8.2f} G cells {seconds:8.3f} s {gigacells / seconds:8.0f} GCUPS")
    print(f"batch of {options.batch} queries, median and most of {len(scored)} batches, ms:")
    both = [a + b for a, b in zip(scored, traced, strict=True)]
    for what, times in (
        (f"score and end of {options.candidates} candidates each, whole call", scored),
        ("of that, kernels alone", splits),
        (f"paths of {options.hits} hits each, whole call", traced),
        ("both", both),
    ):
        if times:
            print(f"    {what:50s} {statistics.median(times) * 1e3:8.2f} {max(times) * 1e3:8.2f}")


if __name__ == "__main__":
    main()
