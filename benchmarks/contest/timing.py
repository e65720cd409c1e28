"""A benchmark of the operator of GPU MODE's contest "Triangle multiplicative update" on its seven shapes.

    python -m benchmarks.contest.timing [--lengths 256,512,1024] [--no-peers]

Times are in milliseconds. The operator has float32 input and output, 128 inner channels and a tolerance of
2e-2, which is checked against its float32 reference, including cases with a mask and with long-tailed input.
Weights are packed for the kernels at a layer's first call, which is not timed. Compared with PyTorch and with
torch.compile under bfloat16 autocast.
"""

import argparse
from itertools import product
from statistics import geometric_mean
from typing import Any

import torch

from benchmarks.contest import kernels, reference
from benchmarks.contest.reference import GateFirstWeights
from benchmarks.fused_timing import Call, Floors, milliseconds, print_times
from cuda.fused.dispatch import hopper_available

INNER = 128
# batch, length, channels, masked, long-tailed
CONTEST = [
    (2, 256, 128, False, False),
    (1, 768, 128, False, True),
    (2, 256, 384, True, False),
    (1, 512, 128, False, False),
    (1, 1024, 128, False, True),
    (1, 768, 384, True, False),
    (1, 1024, 384, False, False),
]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers of unit variance, divided by the first size for a matrix."""
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, device="cuda", dtype=dtype)


def random_case(batch: int, length: int, channels: int, masked: bool, tailed: bool) -> tuple[Any, ...]:
    """Return input, weights and mask of one of the contest's cases."""
    x = random(batch, length, length, channels)
    if tailed:
        # at least 1e-6, since dividing by 0 would leave nothing to compare
        x = x / random(batch, length, length, channels).abs().clamp(min=1e-6)
    mask = torch.ones(batch, length, length, device="cuda")
    if masked:
        mask = torch.randint(0, 2, mask.shape, device="cuda").float()
    shapes = [(channels,)] * 2 + [(channels, INNER)] * 5 + [(INNER,)] * 2 + [(INNER, channels)]
    return x, GateFirstWeights(*(random(*shape) for shape in shapes)), mask


def lower_bounds(floors: Floors, batch: int, length: int, channels: int) -> dict[str, float]:
    """Return lower bounds of a case's time in milliseconds."""
    positions = batch * length**2
    operations = 2 * positions * INNER * (6 * channels + length)
    # x and the result in float32; factors, gate and product in 16 bits, written and read
    return floors.of(positions * (8 * channels + 2 * 2 * 4 * INNER), operations)


def run_cases(floors: Floors, with_peers: bool) -> None:
    """Print a line for each case of the contest, and the geometric mean of our times."""
    torch.backends.cuda.matmul.allow_tf32 = False
    ours: list[float] = []
    for case in CONTEST:
        tensors = random_case(*case)
        operation = reference.gate_first_triangle_multiplication
        result, expected = kernels.gate_first_triangle_multiplication(*tensors), operation(*tensors)
        difference = float((result - expected).abs().max())
        agrees = torch.allclose(result, expected, rtol=2e-2, atol=2e-2)
        del result, expected
        calls: dict[str, Call] = {}
        if with_peers:
            compiled = torch.compile(operation, dynamic=False)

            def autocast(compiled: Call = compiled, tensors: Any = tensors) -> torch.Tensor:
                with torch.autocast("cuda", torch.bfloat16):
                    return compiled(*tensors)

            calls = {
                "PyTorch": lambda tensors=tensors: reference.gate_first_triangle_multiplication(*tensors),
                "torch.compile": autocast,
            }
        calls["ours"] = lambda tensors=tensors: kernels.gate_first_triangle_multiplication(*tensors)
        print_times(f"contest {case[:3]}", calls, lower_bounds(floors, *case[:3]))
        ours.append(milliseconds(calls["ours"]))
        print(f"  maximum difference {difference:.4f}, within the contest's tolerance: {agrees}", flush=True)
    print(f"contest: geometric mean of ours {geometric_mean(ours):.3f} ms", flush=True)


def passes(length: int, channels: int) -> dict[str, Call]:
    """Return calls of each step of the Triton implementation, for N and C."""
    x, weights, mask = random_case(1, length, channels, False, False)
    options = kernels.launch_options(x, torch.float16)
    factors = kernels.project_factors(x, weights, mask, torch.float16, options["operands"])
    gates = factors[2 * INNER :]
    return {
        "operands": lambda: kernels.project_factors(x, weights, mask, torch.float16, options["operands"]),
        "product": lambda: kernels.multiply_factors(factors, INNER, True),
        "finish": lambda: kernels.finish(factors[:INNER], 1.0, gates, weights, x, options["finish"]),
    }


def passes_on_hopper(length: int, channels: int) -> dict[str, Call]:
    """Return calls of each step of the Hopper implementation, for N and C."""
    # deferred: Gluon differs between versions of Triton
    from benchmarks.contest import hopper

    x, weights, mask = random_case(1, length, channels, False, False)
    prepared = hopper.prepare_weights(weights)
    factors = hopper.project_factors(x, prepared, None)
    product, scale = hopper.multiply_factors(factors, 1, True)
    return {
        "operands": lambda: hopper.project_factors(x, prepared, None),
        "operands, masked": lambda: hopper.project_factors(x, prepared, mask),
        "product": lambda: hopper.multiply_factors(factors, 1, True),
        "finish": lambda: hopper.finish(product, scale, factors, prepared, x),
    }


def main() -> None:
    """Print one line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024", help="N of the steps that are timed one by one")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    floors = Floors.measure()
    steps = [("Triton", passes)] + ([("Hopper", passes_on_hopper)] if hopper_available("cuda") else [])
    for name, calls in steps:
        for length, channels in product([int(n) for n in options.lengths.split(",")], (128, 384)):
            bounds = lower_bounds(floors, 1, length, channels)
            print_times(f"{name}'s steps N {length} C {channels}", calls(length, channels), bounds)
    run_cases(floors, not options.no_peers)


if __name__ == "__main__":
    main()
