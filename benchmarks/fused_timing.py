"""What the benchmarks of fused kernels share: times, the GPU's measured floors, tables, tuning."""

import json
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from triton.testing import do_bench

Call = Callable[[], Any]


def milliseconds(call: Call) -> float:
    """The median over a tenth of a second, the L2 cache cleared before each call."""
    return float(do_bench(call, warmup=20, rep=100, return_mode="median"))


@dataclass(frozen=True)
class Floors:
    """What this GPU reaches in this process.

    Args:
        bytes_per_ms: of a copy, read and written bytes together.
        operations_per_ms: of a bf16 product of 8192 × 8192 matrices.
    """

    bytes_per_ms: float
    operations_per_ms: float

    @staticmethod
    def measured() -> "Floors":
        source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        copied = milliseconds(lambda: target.copy_(source))
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        multiplied = milliseconds(lambda: a @ a)
        floors = Floors(2 * source.numel() / copied, 2 * 8192**3 / multiplied)
        print(
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copy "
            f"{floors.bytes_per_ms / 1e9:.2f} TB/s, bf16 product {floors.operations_per_ms / 1e9:.0f} TFLOP/s"
        )
        return floors

    def of(self, moved: float, operations: float) -> dict[str, float]:
        """Milliseconds of so many bytes and so many operations."""
        return {
            "bandwidth floor": moved / self.bytes_per_ms,
            "arithmetic floor": operations / self.operations_per_ms,
        }


def print_times(title: str, calls: dict[str, Call], floors: dict[str, float]) -> None:
    """One row of a table: a name and milliseconds for each call, then the floors."""
    cells = []
    for name, call in calls.items():
        try:
            cells.append(f"{name} {milliseconds(call):.3f}")
        except (torch.OutOfMemoryError, ValueError) as error:
            cells.append(f"{name} {type(error).__name__}")
    cells += [f"{name} {floor:.3f}" for name, floor in floors.items()]
    print(" | ".join([title, *cells]), "ms", flush=True)


def using(kernel: ModuleType, options: dict[str, Any], call: Call) -> Call:
    """The call with these launch options instead of the table's."""

    def called() -> Any:
        with patch.object(kernel, "choose_launch", lambda *_, **__: dict(options)):
            return call()

    return called


def print_best(
    title: str,
    try_once: Callable[[Any], None],
    timed: Callable[[dict[str, Any]], Call],
    size: Any,
    candidates: Iterable[dict[str, Any]],
) -> None:
    """Time launch options and print the best three as rows of a launch table.

    Args:
        title: what is tuned.
        try_once: runs (size, options) in another process, so that all candidates compile side by side.
        timed: the call with these options.
        size: what try_once takes beside the options.
        candidates: options.
    """
    options = list(candidates)
    with ProcessPoolExecutor(min(8, len(options)), multiprocessing.get_context("spawn")) as pool:
        tried = [pool.submit(try_once, (size, each)) for each in options]
        works = [job.exception() is None for job in tried]
    times = [
        (milliseconds(timed(each)), json.dumps(each)) for each, ok in zip(options, works, strict=True) if ok
    ]
    print(f"{title}: {len(times)} of {len(options)} launches work")
    for time, launch in sorted(times)[:3]:
        print(f"  {time:.3f} ms {launch}", flush=True)
