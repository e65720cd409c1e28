"""Which launch is fastest for each query length, by trying: rows of a launch table for the current GPU."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.bounds import GaplessBounds
from cuda.alignment.gapless.device import Device, Ready, ready
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch import GaplessFilter
from cuda.alignment.gapless.launch_table import Filter, Launch
from cuda.alignment.gapless.layout import BYTE, HALF, Layout

LENGTHS: dict[Filter, tuple[int, ...]] = {
    "exact": (*range(32, 513, 32), *range(576, 1025, 64), *range(1152, 2049, 128)),
    "bounds": (*range(16, 513, 16), *range(544, 1025, 32), *range(1088, 2049, 64)),
}
"""Longest queries of the rows of a launch table: multiples of what 4, 8 and 16 lanes can hold."""

_SHAPES = ((128, 4), (192, 2), (192, 3), (256, 2), (256, 3), (256, 4), (384, 2))
_REGISTERS = 2**16
# registers that a thread needs beside its cells, at the least
_OVERHEAD = 34
_RESIDUES = 2**28
# columns of a lane from which more lanes with half as many may be faster
_MANY_COLUMNS = 96


def seconds(queue: Callable[[], None], repeats: int) -> float:
    """The fastest of some calls that queue work on the default stream."""
    best = float("inf")
    for _ in range(repeats):
        start, end = cuda.event(), cuda.event()
        start.record()
        queue()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best


def launches(length: int, kernel: Filter, device: Device) -> Iterator[Launch]:
    """What may be tried for a query of this length."""
    wide = False
    for lanes in (4, 8, 16, 32):
        entry_bytes = 1 if kernel == "bounds" else 2
        step = 4 * entry_bytes
        columns = -(-length // (step * lanes)) * step
        if columns > 128:
            continue
        layout = Layout(lanes, columns, entry_bytes)
        for threads, blocks in _SHAPES:
            registers = layout.pairs + _OVERHEAD
            held = blocks * (layout.table_bytes + 1024)
            if threads * blocks * registers <= _REGISTERS and held <= device.shared_bytes + 1024:
                yield Launch(layout, threads, blocks)
        if wide or columns < _MANY_COLUMNS:
            return
        wide = True


def _kernel(launch: Launch, kernel: Filter, cache: Path) -> Ready:
    """What a filter with this launch runs."""
    device = Device.current()
    variant = Variant(kernel, launch.layout, BYTE if kernel == "bounds" else HALF, device.integer_maximum)
    return ready(variant, launch, cache, device)


def _profile(length: int) -> np.ndarray:
    """Scores as a substitution matrix has them: mostly below 0."""
    return np.random.default_rng(length).integers(-5, 4, (length, 32)).astype(np.int16)


def _queue(launch: Launch, kernel: Filter, cache: Path, arrays: list[Any], length: int) -> Callable[[], None]:
    """Queues a filter on the default stream."""
    count = arrays[-1].size
    if kernel == "bounds":
        bounds = cuda.device_array(count, np.int16)
        return partial(GaplessBounds(_profile(length), cache, launch).bounds, *arrays, bounds)
    scores = cuda.device_array(count, np.int32)
    return partial(GaplessFilter(_profile(length), cache, launch=launch).scores, *arrays, scores)


def _compile(job: tuple[Launch, Filter, Path]) -> None:
    """Leave a compiled kernel in the cache; in a process of its own, as compilers hold a lock."""
    _kernel(*job)


def tune(
    lengths: Iterable[int],
    targets: int,
    cache: Path,
    report: Callable[[str], None],
    kernel: Filter = "bounds",
) -> list[dict[str, float]]:
    """Time every launch that may suit on random targets of the query's length.

    Args:
        lengths: of the queries, such as LENGTHS[kernel].
        targets: how many, at most, and no more than 2²⁸ residues.
        cache: folder for generated and compiled kernels.
        report: told a line for every launch tried.
        kernel: which one.

    Returns:
        Rows of a launch table: longest_query, lanes, columns, threads, blocks, tcups (10¹² cells per second).
    """
    device = Device.current()
    tried = {length: list(launches(length, kernel, device)) for length in lengths}
    jobs = [(launch, kernel, cache) for found in tried.values() for launch in found]
    with multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        pool.map(_compile, jobs, chunksize=1)
    residues = cuda.to_device(np.random.default_rng(0).integers(0, 20, _RESIDUES, dtype=np.uint8))
    rows = []
    for length, found in tried.items():
        room = (length + 3) // 4 * 4
        count = max(1, min(targets, _RESIDUES // room))
        offsets = np.arange(count, dtype=np.int64) * room
        arrays = [residues, cuda.to_device(offsets), cuda.to_device(np.full(count, length, np.int32))]
        best: tuple[float, Launch] | None = None
        for launch in found:
            layout = launch.layout
            shape = f"{layout.lanes} × {layout.columns}, {launch.threads} × {launch.blocks}"
            if spilled := _kernel(launch, kernel, cache).spilled_bytes:
                report(f"{length} {shape}: {spilled} bytes spilled")
                continue
            took = seconds(_queue(launch, kernel, cache, arrays, length), 3)
            speed = length * length * count / took / 1e12
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
