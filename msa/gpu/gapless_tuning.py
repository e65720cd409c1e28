"""Timing and tuning of the gapless filter on the current GPU, for `foldcli bench gapless`."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment import DeviceSequences
from cuda.alignment.gapless import GaplessBounder
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch_table import Launch, launch_table, local_table_path
from cuda.alignment.gapless.layout import BYTE, LaneLayout
from cuda.alignment.gapless.runtime import Device, PreparedKernel, prepare_kernel
from msa.base.hardware import available_cores
from msa.base.services.pool import ServicePool
from msa.gpu.device.devices import Gpu

TARGET_RESIDUES = 2**28
"""Residues of all targets: enough to make overheads negligible, and few enough for any GPU."""

LaunchRows = dict[str, list[dict[str, float]]]
"""Rows of a launch table by kind of score, as in cuda/alignment/gapless/tuning/*.json."""

_CELLS_PER_CLOCK = 64
"""Cells per clock and multiprocessor if shared memory delivers two bytes per cell at its full rate."""
_BLOCK_SHAPES = ((128, 4), (192, 2), (192, 3), (256, 2), (256, 3), (256, 4), (384, 2))
"""(threads per block, blocks per multiprocessor) to try."""
_REGISTERS = 2**16
# minimum registers of a thread in addition to its cells
_OVERHEAD_REGISTERS = 34
_LANE_COUNTS = 3
"""Numbers of lanes to try. The fewer, the less often each residue is fetched, but the longer each target
takes."""


class GaplessTuner:
    """Timing and tuning of the gapless filter on one GPU."""

    def __init__(self, gpu: Gpu, kernels: Path) -> None:
        self._kernels = kernels
        cuda.select_device(gpu.number)
        self.table_path = local_table_path(gpu.name, kernels)
        """Path of this machine's own launch table for the GPU."""

    def speed(self, length: int, residues: int = TARGET_RESIDUES) -> float:
        """Time the filter on random targets of the query's length, with the launches that a search uses.

        Returns:
            10¹² cells (query residues × target residues) per second of GPU time.
        """
        count = max(1, residues // length)
        stride = (length + 3) // 4 * 4
        codes = np.random.default_rng(length).integers(0, 20, count * stride, dtype=np.uint8)
        targets = _equal_targets(cuda.to_device(codes), count, length)
        return length * length * count / 1e12 / self._seconds(targets, length, 5)

    def tune(
        self, lengths: Sequence[int], report: Callable[[str], None], max_targets: int = TARGET_RESIDUES
    ) -> LaunchRows:
        """Find the fastest launches for some query lengths.

        Args:
            lengths: query lengths; if empty, those of the current launch table. Its rows for other lengths
                are kept.
            report: called with one line for every launch tried.
            max_targets: maximum number of targets; they have at most TARGET_RESIDUES residues together.
        """
        device = Device.current()
        rows: dict[float, dict[str, float]] = {
            longest: _table_row(longest, launch)
            for longest, launch in launch_table(device.name, self._kernels).items()
        }
        candidates = {
            length: list(candidate_launches(length, device)) for length in lengths or map(int, rows)
        }
        self._compile_all(launch for launches in candidates.values() for launch in launches)
        rng = np.random.default_rng(0)
        residues = cuda.to_device(rng.integers(0, 20, TARGET_RESIDUES, dtype=np.uint8))
        for length, launches in candidates.items():
            count = max(1, min(max_targets, TARGET_RESIDUES // ((length + 3) // 4 * 4)))
            targets = _equal_targets(residues, count, length)
            best: tuple[float, Launch] | None = None
            for launch in launches:
                layout = launch.layout
                shape = f"{layout.lanes} × {layout.columns}, {launch.threads} × {launch.blocks}"
                if spilled := _prepare(launch, self._kernels).spilled_bytes:
                    report(f"{length} {shape}: {spilled} bytes spilled")
                    continue
                speed = length * length * count / self._seconds(targets, length, 3, launch) / 1e12
                report(f"{length} {shape}: {speed:.2f} TCUPS")
                if best is None or speed > best[0]:
                    best = speed, launch
            if best is not None:
                speed, launch = best
                rows[length] = {**_table_row(length, launch), "tcups": round(speed, 2)}
        return {"bounds": [rows[longest] for longest in sorted(rows)]}

    def _compile_all(self, launches: Iterable[Launch]) -> None:
        """Compile kernels into the cache, in several processes, because compilers hold a lock."""
        jobs = [(launch, self._kernels) for launch in launches]
        pool = ServicePool(min(len(jobs), available_cores()))
        try:
            for compiled in [pool.submit(_compile, job) for job in jobs]:
                compiled.result()
        finally:
            pool.terminate()

    def _seconds(
        self, targets: DeviceSequences, length: int, repeats: int, launch: Launch | None = None
    ) -> float:
        """Return the shortest GPU time of the filter of a random query of this length."""
        bounder = GaplessBounder(_random_profile(length), self._kernels, launch)
        bounds = cuda.device_array(targets.lengths.size, np.int16)
        return min_seconds(lambda: bounder.bound_all(targets, bounds), repeats)


def shared_memory_limit() -> float:
    """Return the 10¹² cells per second that shared memory could serve at two bytes per cell."""
    device: Any = cuda.get_current_device()
    return float(device.MULTIPROCESSOR_COUNT * device.CLOCK_RATE * 1e3 * _CELLS_PER_CLOCK / 1e12)


def table_json(table: LaunchRows) -> str:
    """Format a launch table as JSON with one row per line."""
    kinds = [
        f'  "{kind}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in rows) + "\n  ]"
        for kind, rows in table.items()
    ]
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def min_seconds(queue: Callable[[], None], repeats: int) -> float:
    """Return the shortest GPU time of several calls that queue work on the default stream."""
    best = float("inf")
    for _ in range(repeats):
        start, end = cuda.event(), cuda.event()
        start.record()
        queue()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best


def candidate_launches(length: int, device: Device) -> Iterator[Launch]:
    """Yield the launches to try for a query of this length."""
    layouts = []
    for lanes in (1, 2, 4, 8, 16, 32):
        columns = -(-length // (4 * lanes)) * 4
        if columns <= 128:
            layouts.append(LaneLayout(lanes, columns, 1))
    for layout in layouts[:_LANE_COUNTS]:
        for threads, blocks in _BLOCK_SHAPES:
            registers = layout.pairs + _OVERHEAD_REGISTERS
            shared = blocks * (layout.table_bytes + 1024)
            if threads * blocks * registers <= _REGISTERS and shared <= device.shared_bytes + 1024:
                yield Launch(layout, threads, blocks)


def _equal_targets(residues: Any, count: int, length: int) -> DeviceSequences:
    """Divide device residues into targets of one length."""
    offsets = np.arange(count, dtype=np.int64) * ((length + 3) // 4 * 4)
    return DeviceSequences(
        residues, cuda.to_device(offsets), cuda.to_device(np.full(count, length, np.int32))
    )


def _table_row(length: float, launch: Launch) -> dict[str, float]:
    layout = launch.layout
    return {
        "longest_query": length, "lanes": layout.lanes, "columns": layout.columns,
        "threads": launch.threads, "blocks": launch.blocks,
    }  # fmt: skip


def _random_profile(length: int) -> np.ndarray:
    """Draw scores distributed like those of a substitution matrix, mostly below 0."""
    return np.random.default_rng(length).integers(-5, 4, (length, 32)).astype(np.int16)


def _prepare(launch: Launch, cache: Path) -> PreparedKernel:
    """Compile or load the kernel of a launch."""
    device = Device.current()
    variant = Variant("bounds", launch.layout, BYTE, device.integer_maximum)
    return prepare_kernel(variant, launch, cache, device)


def _compile(job: tuple[Launch, Path]) -> None:
    """Compile a kernel into the cache."""
    _prepare(*job)
