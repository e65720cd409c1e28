"""How fast the gapless filter is on the current GPU, and the launch table that makes it fastest there."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.bounds import GaplessBounds
from cuda.alignment.gapless.device import Device
from cuda.alignment.gapless.launch import GaplessFilter
from cuda.alignment.gapless.launch_table import Filter, launch_table
from cuda.alignment.gapless.tune import seconds, tune

RESIDUES = 2**28
"""Of the targets: so many that overheads do not count, and few enough for any GPU."""

Table = dict[str, list[dict[str, float]]]
"""Rows by kernel, as in tuning/*.json."""

_KERNELS: tuple[Filter, ...] = ("bounds", "exact")
_CELLS_A_CLOCK = 64
"""Of a multiprocessor, at two bytes a cell from shared memory without a pause."""


@dataclass(frozen=True)
class Speed:
    """10¹² cells (query residues × target residues) per second, by events around the kernels.

    Args:
        length: residues of the query and of each target.
        bounds: of upper bounds of the scores.
        exact: of the scores.
    """

    length: int
    bounds: float
    exact: float


def wall() -> float:
    """10¹² cells per second that the current GPU's shared memory could serve at two bytes a cell."""
    device: Any = cuda.get_current_device()
    return float(device.MULTIPROCESSOR_COUNT * device.CLOCK_RATE * 1e3 * _CELLS_A_CLOCK / 1e12)


def speed(length: int, cache: Path, residues: int = RESIDUES) -> Speed:
    """Time the filter on random targets, with the launches that a search takes.

    Args:
        length: of the query.
        cache: folder for generated and compiled kernels.
        residues: of all targets together, about.
    """
    count = max(1, residues // length)
    room = (length + 3) // 4 * 4
    rng = np.random.default_rng(length)
    profile = rng.integers(-5, 4, (length, 32)).astype(np.int16)
    codes = rng.integers(0, 20, count * room, dtype=np.uint8)
    offsets = np.arange(count, dtype=np.int64) * room
    targets = [cuda.to_device(a) for a in (codes, offsets, np.full(count, length, np.int32))]
    bounds, scores = cuda.device_array(count, np.int16), cuda.device_array(count, np.int32)
    bounding, exact = GaplessBounds(profile, cache), GaplessFilter(profile, cache)
    cells = length * length * count / 1e12
    return Speed(
        length,
        cells / seconds(lambda: bounding.bounds(*targets, bounds), 5),
        cells / seconds(lambda: exact.scores(*targets, scores), 5),
    )


def tuned_table(
    lengths: Sequence[int], cache: Path, report: Callable[[str], None], targets: int = RESIDUES
) -> Table:
    """The launch table of the current GPU with the fastest launches for some query lengths.

    Args:
        lengths: of the queries, or none: those of the table; rows for other lengths stay as they are.
        cache: folder for generated and compiled kernels.
        report: told a line for every launch tried.
        targets: how many, at most; never more than RESIDUES residues.
    """
    device, table = Device.current(), {}
    for kernel in _KERNELS:
        rows: dict[float, dict[str, float]] = {
            longest: {
                "longest_query": longest, "lanes": launch.layout.lanes, "columns": launch.layout.columns,
                "threads": launch.threads, "blocks": launch.blocks,
            }
            for longest, launch in launch_table(device.name, kernel, cache).items()
        }  # fmt: skip
        report(f"{kernel}:")
        found = tune(lengths or list(map(int, rows)), targets, cache, report, kernel)
        rows |= {row["longest_query"]: row for row in found}
        table[kernel] = [rows[longest] for longest in sorted(rows)]
    return table


def as_json(table: Table) -> str:
    """A launch table as text: a row a line."""
    kernels = [
        f'  "{kernel}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in rows) + "\n  ]"
        for kernel, rows in table.items()
    ]
    return "{\n" + ",\n".join(kernels) + "\n}\n"
