"""A benchmark of AlphaFold2's triangle multiplication in bfloat16, in milliseconds.

    python benchmarks/triangle_multiplication.py [--lengths 256,512,1024] [--no-peers] [--tune]

Compared with PyTorch, torch.compile, and cuEquivariance if it is installed. Weights are packed for the
kernels at a layer's first call, as in the network, and this call is not timed. `--tune` times launch options
of the Triton kernels instead, and prints the best ones for the launch table. GPU MODE's form is in
benchmarks/contest.
"""

import argparse
from importlib.util import find_spec
from itertools import product
from math import prod
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, print_times, replayed, with_options

from cuda.fused.dispatch import hopper_available, implementation_module
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights, reference, triton

INNER = 128


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers of unit variance, divided by the first size for a matrix."""
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, device="cuda", dtype=dtype)


def random_layer(length: int, channels: int = 128) -> tuple[torch.Tensor, TriangleMultiplicationWeights]:
    """Return a pair representation [N, N, C] and weights."""
    c, dtype = channels, torch.bfloat16
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(random(*shape, dtype=dtype) for shape in shapes))
    return random(length, length, c, dtype=dtype), weights


def run(floors: Floors, length: int, with_peers: bool) -> None:
    """Print a line for one length."""
    kernel = implementation_module("triangle_multiplication", device="cuda")
    pair, weights = random_layer(length)
    calls: dict[str, Call] = {}
    if with_peers:
        compiled = torch.compile(reference.triangle_multiplication, dynamic=False)
        calls["PyTorch"] = lambda: reference.triangle_multiplication(pair, weights, outgoing=True)
        calls["torch.compile"] = lambda: compiled(pair, weights, outgoing=True)
        if find_spec("cuequivariance_torch") is not None:
            calls["cuEquivariance"] = cuequivariance(pair, weights)
    for name, outgoing in (("outgoing", True), ("incoming", False)):
        calls[f"ours, {name}"] = lambda outgoing=outgoing: kernel.triangle_multiplication(
            pair, weights, outgoing=outgoing
        )
    mask = torch.ones(length, length, device="cuda", dtype=pair.dtype)
    calls["ours, added in place, masked"] = lambda: kernel.add_triangle_multiplication(
        pair, weights, mask, outgoing=True
    )
    calls["ours in a graph"] = replayed(calls["ours, outgoing"])
    positions, channels = length**2, pair.shape[-1]
    limits = floors.of(2 * positions * channels * 9, 2 * positions * channels * (6 * channels + length))
    print_times(f"triangle multiplication N {length} C {channels}", calls, limits)


def cuequivariance(pair: torch.Tensor, weights: TriangleMultiplicationWeights) -> Call:
    """Return a call of cuEquivariance's kernel."""
    from cuequivariance_torch import triangle_multiplicative_update

    w = weights
    named = {
        "norm_in_weight": w.norm_scale,
        "norm_in_bias": w.norm_offset,
        "p_in_weight": torch.cat([w.left, w.right], 1).T.contiguous(),
        "p_in_bias": torch.cat([w.left_bias, w.right_bias]),
        "g_in_weight": torch.cat([w.left_gate, w.right_gate], 1).T.contiguous(),
        "g_in_bias": torch.cat([w.left_gate_bias, w.right_gate_bias]),
        "norm_out_weight": w.center_scale,
        "norm_out_bias": w.center_offset,
        "p_out_weight": w.output.T.contiguous(),
        "p_out_bias": w.output_bias,
        "g_out_weight": w.gating.T.contiguous(),
        "g_out_bias": w.gating_bias,
    }
    return lambda: triangle_multiplicative_update(pair[None], "outgoing", **named)


def passes(size: tuple[int, int]) -> dict[str, Call]:
    """Return calls of each step of the Triton implementation, for N and C."""
    length, channels = size
    pair, weights = random_layer(length, channels)
    x, inner = pair[None], weights.left.shape[1]

    def options(name: str) -> dict[str, Any]:
        return triton.choose_launch("triangle_multiplication", pair, channels)[name]

    factors = triton.project_factors(x, weights, None, options("operands"))
    result = torch.empty_like(x)
    return {
        "operands": lambda: triton.project_factors(x, weights, None, options("operands")),
        "product": lambda: triton.multiply_factors(factors, inner, True),
        "finish": lambda: triton.finish(factors[:inner], 1.0, weights, x, result, False, options("finish")),
    }


def passes_on_hopper(length: int, channels: int = 128) -> dict[str, Call]:
    """Return calls of each step of the Hopper implementation, for N and C."""
    # deferred: Gluon differs between versions of Triton
    from cuda.fused.triangle_multiplication import hopper

    pair, weights = random_layer(length, channels)
    mask = torch.ones_like(pair[..., 0])
    prepared = hopper.prepare_weights(weights)
    tiles, result = hopper.position_tiles(pair), torch.empty_like(pair)
    factors = hopper.project_factors(tiles, prepared, None)
    return {
        "operands": lambda: hopper.project_factors(tiles, prepared, None),
        "operands, masked": lambda: hopper.project_factors(tiles, prepared, mask),
        "product": lambda: triton.scaled_product(factors[:channels], factors[channels:], True),
        "finish": lambda: hopper.finish(factors[:channels], prepared, tiles, result, False),
        "finish, added": lambda: hopper.finish(factors[:channels], prepared, tiles, result, True),
    }


def run_once(job: tuple[tuple[str, int, int], dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (name, _, channels), options = job
    call = passes((64, channels))[name]
    with_options(triton, {name: options}, call)()
    torch.cuda.synchronize()


def tune(tuner: Tuner, length: int, channels: int) -> None:
    """Print the best launch options of each Triton kernel."""
    calls = passes((length, channels))
    common = {"PRECISION": "ieee"}
    candidates = {
        "operands": [
            common
            | {"POSITIONS": positions, "INNER": inner, "CHUNK": min(128, channels)}
            | {"num_warps": warps, "num_stages": stages}
            for positions, inner, warps, stages in product(
                (64, 128, 256), (16, 32, 64, 128), (4, 8), (1, 2, 3)
            )
            if 2 * positions * inner <= 4096 * warps and positions * INNER <= 4096 * warps
        ],
        "finish": [
            common | {"POSITIONS": positions, "OUTPUTS": outputs, "num_warps": warps, "num_stages": stages}
            for positions, outputs, warps, stages in product((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3))
        ],
    }
    for name, each in candidates.items():
        tuner.print_best(
            f"{name} N {length} C {channels}",
            (name, length, channels),
            lambda options, name=name: with_options(triton, {name: options}, calls[name]),
            each,
        )


def main() -> None:
    """Print one line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024")
    parser.add_argument("--channels", default="64,128", help="channels that --tune is for")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    lengths = [int(n) for n in options.lengths.split(",")]
    if options.tune:
        tuner = Tuner(run_once)
        for length, channels in product(lengths, [int(c) for c in options.channels.split(",")]):
            tune(tuner, length, channels)
        return
    floors = Floors.measure()
    for length in (512, 1024):
        moved = prod((length, length, 128, 2))
        print_times(f"Triton's steps N {length} C 128", passes((length, 128)), floors.of(moved, 0))
    if hopper_available("cuda"):
        for length in lengths:
            moved = prod((length, length, 128, 2))
            print_times(f"Hopper's steps N {length} C 128", passes_on_hopper(length), floors.of(moved, 0))
    for length in lengths:
        run(floors, length, not options.no_peers)


if __name__ == "__main__":
    main()
