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


def on_any_gpu(kernel: ModuleType, call: Call) -> Call:
    """The call without the operation's kernel for Hopper GPUs."""

    def called() -> Any:
        with patch.object(kernel, "available", lambda _: False):
            return call()

    return called


class Tuner:
    """Times launch options; other processes run each first, so that all compile side by side.

    Args:
        run_once: what they run: takes (size, options), and does not have to be large.
        processes: how many of them.
    """

    def __init__(self, run_once: Callable[[Any], None], processes: int = 12) -> None:
        self.run_once = run_once
        self.pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))

    def print_best(
        self,
        title: str,
        size: Any,
        timed: Callable[[dict[str, Any]], Call],
        candidates: Iterable[dict[str, Any]],
    ) -> None:
        """Print the best three options as a launch table has them.

        Args:
            title: what is tuned.
            size: what run_once takes beside the options.
            timed: the call with these options.
            candidates: options.
        """
        options = list(candidates)
        tried = [self.pool.submit(self.run_once, (size, each)) for each in options]
        works = [each for job, each in zip(tried, options, strict=True) if job.exception() is None]
        times = sorted((milliseconds(timed(each)), json.dumps(each)) for each in works)
        print(f"{title}: {len(times)} of {len(options)} launches work")
        for time, launch in times[:3]:
            print(f"  {time:.3f} ms {launch}", flush=True)
