"""Which launch is fastest for each query length, by trying: rows of a launch table for the current GPU."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.bounds import GaplessBounds
from cuda.alignment.gapless.device import Device
from cuda.alignment.gapless.launch import GaplessFilter
from cuda.alignment.gapless.launch_table import Filter, Launch
from cuda.alignment.gapless.layout import Layout

LENGTHS = (*range(32, 513, 32), *range(576, 1025, 64), *range(1152, 2049, 128))
"""Longest queries of the rows of a launch table."""

_SHAPES = ((128, 4), (128, 5), (192, 2), (192, 3), (256, 2), (256, 3), (384, 1), (384, 2), (512, 1))
_REGISTERS = 2**16
# registers that a thread needs beside its cells, at the least
_OVERHEAD = {"exact": 50, "bounds": 34}
# of a tile, so many times the query at most
_MOST_PADDING = 1.2


def seconds(queue: Callable[[], None], repeats: int) -> float:
    """The fastest of some calls that queue work on the default stream."""
    best = float("inf")
    for _ in range(repeats):
        start, end = cuda.event(), cuda.event()
        start.record()
        queue()
        end.record()
        end.synchronize()
        best = min(best, cuda.event_elapsed_time(start, end) / 1e3)
    return best


def launches(length: int, kernel: Filter, device: Device) -> Iterator[Launch]:
    """What may be tried for a query of this length."""
    for lanes in (4, 8, 16, 32):
        columns = -(-length // (8 * lanes)) * 8
        if columns > 128 or (lanes > 4 and lanes * columns > _MOST_PADDING * length):
            continue
        layout = Layout(lanes, columns, 1 if kernel == "bounds" else 2)
        for threads, blocks in _SHAPES:
            registers = layout.pairs + _OVERHEAD[kernel]
            held = blocks * (layout.table_bytes + 1024)
            if threads * blocks * registers <= _REGISTERS and held <= device.shared_bytes + 1024:
                yield Launch(layout, threads, blocks)


def _filter(
    profile: np.ndarray, cache: Path, launch: Launch, kernel: Filter
) -> tuple[Callable[..., None], np.dtype[Any]]:
    if kernel == "bounds":
        return GaplessBounds(profile, cache, launch).bounds, np.dtype(np.int16)
    return GaplessFilter(profile, cache, launch=launch).scores, np.dtype(np.int32)


def _profile(length: int) -> np.ndarray:
    """Scores as a substitution matrix has them: mostly below 0."""
    return np.random.default_rng(length).integers(-5, 4, (length, 32)).astype(np.int16)


def _compile(job: tuple[int, Launch, Path, Filter]) -> None:
    """Leave a compiled kernel in the cache; in a process of its own, as compilers hold a lock."""
    length, launch, cache, kernel = job
    one = [cuda.to_device(np.zeros(n, kind)) for n, kind in ((4, np.uint8), (1, np.int64), (1, np.int32))]
    filter_, kind = _filter(_profile(length), cache, launch, kernel)
    filter_(*one, cuda.device_array(1, kind))


def tune(
    lengths: Iterable[int],
    targets: int,
    cache: Path,
    report: Callable[[str], None],
    kernel: Filter = "bounds",
) -> list[dict[str, float]]:
    """Time every launch that may suit on random targets of the query's length.

    Args:
        lengths: of the queries, such as LENGTHS.
        targets: how many, at most; about 2²⁸ residues are enough.
        cache: folder for generated and compiled kernels.
        report: told a line for every launch tried.
        kernel: which one.

    Returns:
        Rows of a launch table: longest_query, lanes, columns, threads, blocks, tcups (10¹² cells per second).
    """
    device = Device.current()
    tried = {length: list(launches(length, kernel, device)) for length in lengths}
    jobs = [(length, launch, cache, kernel) for length, found in tried.items() for launch in found]
    with multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        pool.map(_compile, jobs, chunksize=1)
    rows = []
    for length, found in tried.items():
        count = max(1, min(targets, 2**28 // length))
        room = (length + 3) // 4 * 4
        residues = np.random.default_rng(length).integers(0, 20, count * room, dtype=np.uint8)
        offsets = np.arange(count, dtype=np.int64) * room
        arrays = [cuda.to_device(a) for a in (residues, offsets, np.full(count, length, np.int32))]
        best: tuple[float, Launch] | None = None
        for launch in found:
            filter_, kind = _filter(_profile(length), cache, launch, kernel)
            out = cuda.device_array(count, kind)
            try:
                took = seconds(lambda: filter_(*arrays, out), 3)  # noqa: B023
            except RuntimeError as error:
                report(f"{length} {launch}: {error}")
                continue
            speed = length * length * count / took / 1e12
            layout = launch.layout
            shape = f"{layout.lanes} × {layout.columns}, {launch.threads} × {launch.blocks}"
            report(f"{length} {shape}: {speed:.2f} TCUPS")
            if best is None or speed > best[0]:
                best = speed, launch
        if best is None:
            continue
        speed, launch = best
        rows.append({
            "longest_query": length, "lanes": launch.layout.lanes, "columns": launch.layout.columns,
            "threads": launch.threads, "blocks": launch.blocks, "tcups": round(speed, 2),
        })  # fmt: skip
    return rows
