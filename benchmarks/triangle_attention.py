"""A benchmark of triangle attention, in milliseconds: N rows of N × N logits in bfloat16, 4 heads × 32.

    python benchmarks/triangle_attention.py [--lengths 256,512,1024,2048] [--tune]

The first line is the core between the projections, compared with PyTorch eager and compiled, SDPA with an
expanded bias, FlexAttention, and cuEquivariance if it is installed. These take queries, keys, values and
bias; ours takes them as one projection, with gates. "In a graph" leaves out the launches' work on the CPU.
The exponential floor is 16 per clock cycle and multiprocessor. The second line is the whole operation with
LayerNorm and projections, for contiguous rows and for swapped axes (the ending node), in a graph; its chunks
are those of the network's passes if memory suffices. The third is the core for the MSA's rows and columns,
for a steep bias, and for queries so large that all blocks are computed twice.
"""

import argparse
from importlib.util import find_spec
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from fused_timing import Call, Floors, Tuner, print_times, replayed, with_options
from torch.nn.attention.flex_attention import flex_attention

from cuda.fused.attention import AttentionWeights, reference, triton
from cuda.fused.chunking import chunk_budget
from cuda.fused.dispatch import implementation_module

HEADS, WIDTH, CHANNELS = 4, 32, 128
MSA_ROWS, MSA_HEADS = 508, 8
INNER = HEADS * WIDTH


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    logits = q @ k.transpose(-1, -2) * WIDTH**-0.5 + bias
    return torch.softmax(logits.float(), -1).to(q.dtype) @ v


def core(
    rows: int,
    length: int,
    heads: int = HEADS,
    biased: bool = True,
    swapped: bool = False,
    bias_scale: float = 1.0,
    query_scale: float = 1.0,
    implementation: str = "auto",
) -> Call:
    """Return a call of our kernel between the projections."""
    kernel, inner = implementation_module("attention", implementation, "cuda"), heads * WIDTH
    shape = (length, rows) if swapped else (rows, length)
    projected, gated, gating_bias = random(*shape, 4 * inner), random(*shape, inner), random(heads, WIDTH)
    projected[..., :inner] *= query_scale
    if swapped:
        projected, gated = projected.transpose(0, 1), gated.transpose(0, 1)
    bias = random(heads, length, length, scale=bias_scale) if biased else None
    return lambda: kernel.attend(projected, gating_bias, None, bias, gated)


def others(length: int) -> dict[str, Call]:
    """Return calls of the kernel's other uses, and of extreme inputs."""
    return {
        "MSA rows": core(MSA_ROWS, length, MSA_HEADS),
        "MSA columns": core(length, MSA_ROWS, MSA_HEADS, biased=False, swapped=True),
        "triangle, steep bias": core(length, length, bias_scale=1e3),
        "triangle, large queries": core(length, length, query_scale=1e3),
    }


def peers(length: int) -> dict[str, Call]:
    """Return calls of other implementations of the core."""
    q, k, v = (random(length, HEADS, length, WIDTH) for _ in range(3))
    bias = random(HEADS, length, length)
    calls: dict[str, Call] = {}
    if length <= 1024:
        compiled = torch.compile(eager, dynamic=False)
        calls["eager"] = lambda: eager(q, k, v, bias)
        calls["torch.compile"] = lambda: compiled(q, k, v, bias)
    calls["SDPA"] = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
    flexible = torch.compile(flex_attention, dynamic=False)
    calls["FlexAttention"] = lambda: flexible(
        q, k, v, score_mod=lambda score, b, h, i, j: score + bias[h, i, j]
    )
    if find_spec("cuequivariance_torch") is not None:
        from cuequivariance_torch import triangle_attention

        mask = torch.ones(1, length, 1, 1, length, dtype=torch.bool, device="cuda")
        calls["cuEquivariance"] = lambda: triangle_attention(
            q[None], k[None], v[None], bias[None, None], mask
        )
    return calls


def whole(length: int) -> dict[str, Call]:
    """Return calls of the whole operation around a starting and an ending node."""
    kernel = implementation_module("attention", device="cuda")
    shapes: list[tuple[int, ...]] = [(CHANNELS,), (CHANNELS,), *[(CHANNELS, HEADS, WIDTH)] * 4]
    shapes += [(HEADS, WIDTH), (HEADS, WIDTH, CHANNELS), (CHANNELS,)]
    weights = AttentionWeights(*(random(*shape, scale=shape[0] ** -0.5) for shape in shapes))
    pair, bias = random(length, length, CHANNELS), random(HEADS, length, length)
    swapped, sums = pair.transpose(0, 1), pair.clone().transpose(0, 1)
    calls: dict[str, Call] = {
        "PyTorch": lambda: reference.attention(pair, weights, None, bias),
        "ours, starting": lambda: kernel.attention(pair, weights, None, bias),
        "ours, ending": lambda: kernel.attention(swapped, weights, None, bias),
        "ours, added in place": lambda: kernel.add_attention(sums, weights, None, bias),
    }
    # see model.memory_plan.plan_memory
    with chunk_budget(2 * length**2 * CHANNELS):
        return {name: replayed(call) for name, call in calls.items()}


def run_once(job: tuple[int, dict[str, Any]]) -> None:
    """Compile and run one launch."""
    length, options = job
    with_options(triton, {"attend": options}, core(16, length, implementation="triton"))()
    torch.cuda.synchronize()


def tune(tuner: Tuner, length: int) -> None:
    """Print the best launch options of the Triton kernel."""
    call = core(length, length, implementation="triton")
    shapes = product((1, 2), (64, 128), (32, 64, 128), (4, 8), (2, 3, 4), (None, 128, 168))
    candidates = [
        {"ROWS": rows, "QUERIES": queries, "KEYS": keys, "PRECISION": "ieee", "STAGES": stages}
        | {"num_warps": warps, "maxnreg": registers}
        for rows, queries, keys, warps, stages, registers in shapes
        # with fewer threads they spill, with more these have too little work
        if queries * keys * rows <= 64 * 128 * warps // 4 and queries * 4 >= 64 * warps
    ]
    tuner.print_best(
        f"N {length}", length, lambda options: with_options(triton, {"attend": options}, call), candidates
    )


def main() -> None:
    """Print three lines for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024,2048")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    tuner = Tuner(run_once) if options.tune else None
    floors = Floors.measure()
    device = torch.cuda.get_device_properties(0)
    for length in [int(n) for n in options.lengths.split(",")]:
        if tuner is not None:
            tune(tuner, length)
            continue
        cells = HEADS * length**3
        limits = floors.of(6 * length**2 * INNER * 2, 4 * WIDTH * cells)
        limits["exponential floor"] = cells / (16 * device.multi_processor_count * device.clock_rate)
        calls = {} if options.no_peers else peers(length)
        calls["ours"] = core(length, length)
        for name in ("FlexAttention", "cuEquivariance", "ours"):
            if name in calls:
                calls[f"{name} in a graph"] = replayed(calls[name])
        print_times(f"triangle attention N {length}", calls, limits)
        print_times(f"with its projections N {length}", whole(length), {})
        print_times(f"the same kernel N {length}", others(length), {})


if __name__ == "__main__":
    main()
