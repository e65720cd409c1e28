"""Tools shared by the benchmarks of fused kernels: timing, measured limits of the GPU, tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from triton.testing import do_bench

from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights

Call = Callable[[], Any]


def milliseconds(call: Call) -> float:
    """Return the median time over a tenth of a second; the L2 cache is cleared before each call."""
    return float(do_bench(call, warmup=20, rep=100, return_mode="median"))


def replayed(call: Call) -> Call:
    """Return a call that launches all kernels at once by a CUDA graph, as passes of up to 512 residues do."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@dataclass(frozen=True)
class Floors:
    """Measured rates of this GPU, from which lower bounds of times follow.

    Args:
        bytes_per_ms: of a copy, counting read and written bytes.
        operations_per_ms: of a bfloat16 product of 8192 × 8192 matrices.
    """

    bytes_per_ms: float
    operations_per_ms: float

    @staticmethod
    def measure() -> "Floors":
        """Measure the rates, and print them."""
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
        """Return the milliseconds that the GPU needs for a number of bytes and of operations."""
        return {
            "bandwidth floor": moved / self.bytes_per_ms,
            "arithmetic floor": operations / self.operations_per_ms,
        }


def print_times(title: str, calls: dict[str, Call], floors: dict[str, float]) -> None:
    """Print one row of a table: names and milliseconds of the calls, then of the floors."""
    cells = []
    for name, call in calls.items():
        try:
            cells.append(f"{name} {milliseconds(call):.3f}")
        except (torch.OutOfMemoryError, ValueError) as error:
            cells.append(f"{name} {type(error).__name__}")
    cells += [f"{name} {floor:.3f}" for name, floor in floors.items()]
    print(" | ".join([title, *cells]), "ms", flush=True)


def cuequivariance_arguments(w: TriangleMultiplicationWeights) -> dict[str, torch.Tensor]:
    """Return the weights as cuEquivariance's `triangle_multiplicative_update` takes them."""
    return {
        "norm_in_weight": w.norm_scale,
        "norm_in_bias": w.norm_offset,
        "p_in_weight": torch.cat([w.left, w.right], 1).T,
        "p_in_bias": torch.cat([w.left_bias, w.right_bias]),
        "g_in_weight": torch.cat([w.left_gate, w.right_gate], 1).T,
        "g_in_bias": torch.cat([w.left_gate_bias, w.right_gate_bias]),
        "norm_out_weight": w.center_scale,
        "norm_out_bias": w.center_offset,
        "p_out_weight": w.output.T,
        "p_out_bias": w.output_bias,
        "g_out_weight": w.gating.T,
        "g_out_bias": w.gating_bias,
    }


def random(*shape: int, scale: float | None = None, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return numbers of unit variance, divided by the first size for matrices, or times `scale`."""
    if scale is None:
        scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, device="cuda", dtype=dtype)
