"""Cell updates per second of Gotoh alignment and top-k selection on the GPU, beside the CPU engine.

The pairs are real: each query with its best targets by gapless score. Scores, ends and paths are compared
with the CPU engine's, the selections with msa.search.best_targets; any difference ends the run with an error.

    python benchmarks/gotoh_gpu.py DATABASE.fasta QUERIES.fasta [--queries 500] [--targets 4000]

Prints GCUPS (10⁹ cells, query residues × target residues, per second): of the kernels alone (CUDA events,
median of the repeats), and of whole calls, host work and copies included.
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

from cuda.alignment.gotoh import DeviceTargets, Pairs, Query, end_positions, trace_paths
from cuda.alignment.gotoh.launch import _plan, _Rows, available_shapes, packed_launches
from cuda.alignment.select import TopSelector
from msa.alphabet import encode
from msa.build import database_from
from msa.cpu.gapless import gapless_scores
from msa.cpu.gotoh import align
from msa.cpu.targets import Targets
from msa.fasta import read_fasta
from msa.profile import query_profile
from msa.search import best_targets


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


def wall_seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def pairs_of(chosen: list[np.ndarray], targets: Targets, most: int) -> Pairs:
    kept = [indices[:most] for indices in chosen]
    query = np.repeat(np.arange(len(kept), dtype=np.int32), [len(indices) for indices in kept])
    target = np.concatenate(kept)
    return Pairs(query, target, targets.lengths[target])


def cells(queries: list[Query], pairs: Pairs) -> float:
    lengths = np.array([len(query.codes) for query in queries])
    return float((lengths[pairs.query] * pairs.length).sum()) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
    parser.add_argument("--queries", dest="count", type=int, default=500)
    parser.add_argument("--targets", type=int, default=4000)
    parser.add_argument("--traced", type=int, default=300)
    parser.add_argument("--compared", type=int, default=20, help="queries all of whose targets are compared")
    options = parser.parse_args()
    threads = os.cpu_count() or 1
    codes = [encode(record.sequence) for record in read_fasta(options.queries)][: options.count]
    queries = [Query(query_profile(query), query) for query in codes]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        database = database_from(Path(options.database), Path(name), None)
        targets = Targets(database.residues, database.offsets, database.lengths)
        device = DeviceTargets(
            cuda.to_device(np.array(targets.residues)),
            cuda.to_device(np.array(targets.offsets)),
            cuda.to_device(np.array(targets.lengths)),
        )
        selector, chosen, select_times, select_walls = TopSelector(options.targets), [], [], []
        for query in queries:
            scores = gapless_scores(query.profile, targets, threads)
            scores_device = cuda.to_device(scores)
            selector.select(scores_device, 15)
            select_walls.append(wall_seconds(lambda s=scores_device: selector.select(s, 15)))  # type: ignore[misc]
            indices, _ = selector.select(scores_device, 15)
            expected = best_targets(scores, options.targets, 15)
            assert np.array_equal(indices, expected)
            select_times.append(wall_seconds(lambda s=scores: best_targets(s, options.targets, 15)))  # type: ignore[misc]
            chosen.append(expected)
        print(f"{len(queries)} selections of {options.targets} from {len(targets)} equal best_targets")

        pairs = pairs_of(chosen, targets, options.targets)
        total = cells(queries, pairs)
        begin = time.perf_counter()
        end_positions(queries, device, pairs)
        print(f"first call, compilation included: {time.perf_counter() - begin:.1f} s")
        shapes = available_shapes()
        work = _Rows(queries, device, pairs, 11, 1, 0, None)
        found = work.empty((len(pairs), 3))
        every = np.arange(len(pairs))
        lengths = np.array([len(query.codes) for query in queries])
        by_shape = []
        wide = list(_plan(queries, pairs, every, "wide", shapes.wide))
        for kind, kinds in (("packed", packed_launches(queries, pairs, shapes)), ("wide", wide)):
            seconds = 0.0
            for launch in kinds:
                if kind == "packed":
                    arguments = work.packed_arguments(launch, found)
                else:
                    heights = pairs.length[launch.order].astype(np.int64)
                    arguments = work.wide_arguments(
                        launch, found, heights, work.empty(1), np.zeros(1, np.int64)
                    )
                taken = event_seconds(lambda a=arguments, n=launch, k=kind: work.run(k, n, a))  # type: ignore[misc]
                seconds += taken
                here = pairs.query[launch.order]
                useful = float((lengths[here] * pairs.length[launch.order]).sum()) / 1e9
                held = float((-(-lengths[here] // launch.shape.width)
                              * launch.shape.width * pairs.length[launch.order]).sum()) / 1e9  # fmt: skip
                by_shape.append((kind, launch.shape, len(np.unique(here)), useful, held, taken))
            rows.append((f"score and end, {kind} kernels, one after the other", total, seconds))
        launches = packed_launches(queries, pairs, shapes)
        prepared = [work.packed_arguments(launch, found) for launch in launches]
        together = event_seconds(lambda: work.run_prepared(launches, prepared))
        rows.append(("score and end, packed kernels side by side", total, together))
        rows.append(
            ("score and end, whole call", total, wall_seconds(lambda: end_positions(queries, device, pairs)))
        )
        ends = end_positions(queries, device, pairs)

        begin = time.perf_counter()
        compared = 0
        for q in range(min(options.compared, len(queries))):
            here = np.flatnonzero(pairs.query == q)
            results = align(queries[q].profile, codes[q], targets, pairs.target[here], threads=threads)
            for place, result in zip(here.tolist(), results, strict=True):
                assert ends[place].tolist() == [result.score, result.query_end - 1, result.target_end - 1]
                compared += 1
        print(f"{compared} scores and ends equal the CPU's ({time.perf_counter() - begin:.1f} s)")

        traced = pairs_of(chosen, targets, options.traced)
        traced_ends = end_positions(queries, device, traced)
        trace_paths(queries, device, traced, traced_ends)
        rows.append((
            f"paths of the best {options.traced}, whole call", cells(queries, traced),
            wall_seconds(lambda: trace_paths(queries, device, traced, traced_ends)),
        ))  # fmt: skip
        alignments = trace_paths(queries, device, traced, traced_ends, budget=2**28)
        compared, cpu_seconds = 0, 0.0
        for q in range(len(queries)):
            here = np.flatnonzero(traced.query == q)
            begin = time.perf_counter()
            results = align(queries[q].profile, codes[q], targets, traced.target[here], threads=threads)
            cpu_seconds += time.perf_counter() - begin
            for place, result in zip(here.tolist(), results, strict=True):
                row, runs = (
                    alignments.found[place].tolist(),
                    alignments.runs[slice(*alignments.starts[place : place + 2])],
                )
                if result.score:
                    assert row == [
                        result.score, result.query_start - 1, result.query_end - 1, result.target_start - 1,
                        result.target_end - 1, result.identities, result.columns, len(result.runs),
                    ]  # fmt: skip
                else:
                    assert not any(row)
                assert np.array_equal(runs, result.runs)
                compared += 1
        rows.append(
            (f"CPU engine, score, end and path, {threads} threads", cells(queries, traced), cpu_seconds)
        )
        print(f"{compared} paths equal the CPU's")
    query, target = lengths.mean(), pairs.length.mean()
    print(
        f"{len(queries)} queries of {query:.0f} residues, {len(pairs)} pairs, targets of {target:.0f} (means)"
    )
    for kind, shape, count, useful, held, taken in by_shape:
        print(
            f"{kind:7s} {shape.lanes:2d} lanes × {shape.columns:2d} columns: {count:3d} queries, "
            f"{useful:7.2f} G cells, filled {useful / held:.2f}, {taken * 1e3:8.2f} ms, "
            f"{useful / taken:7.0f} GCUPS"
        )
    gpu, cpu = np.median(select_walls) * 1e6, np.median(select_times) * 1e6
    print(f"selection: GPU {gpu:.0f} µs a call, CPU {cpu:.0f} µs")
    for what, amount, seconds in rows:
        print(f"{what:50s} {amount:8.2f} G cells {seconds:8.3f} s {amount / seconds:8.0f} GCUPS")


if __name__ == "__main__":
    main()
