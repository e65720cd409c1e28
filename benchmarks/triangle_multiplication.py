"""Milliseconds of the triangle multiplication: GPU MODE's seven shapes, then AlphaFold2's form in bfloat16.

    python benchmarks/triangle_multiplication.py [--lengths 256,512,1024] [--no-peers] [--tune]

The contest's operator has float32 in and out, 128 inner channels and a tolerance of 2e-2, which is checked
here against its float32 reference; its cases with long-tailed input and with a mask are so too. Weights are
cast and laid out for the kernels at a layer's first call, as a network has it, and that call is not timed;
all else is. Peers:
PyTorch, torch.compile under bfloat16 autocast and, for AlphaFold2's form, cuEquivariance if it is installed.
"""

import argparse
from importlib.util import find_spec
from itertools import product
from math import prod
from statistics import geometric_mean
from typing import Any

import torch
from fused_timing import Call, Floors, Tuner, milliseconds, print_times, using

from cuda.fused.hopper import available
from cuda.fused.triangle_multiplication import (
    GateFirstWeights,
    TriangleMultiplicationWeights,
    kernel,
    reference,
)
from cuda.fused.triangle_multiplication.product import multiplied

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
    """Of unit variance, or that over the first size for a matrix."""
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, device="cuda", dtype=dtype)


def contest(batch: int, length: int, channels: int, masked: bool, tailed: bool) -> tuple[Any, ...]:
    """Input, weights and mask of one of its cases."""
    x = random(batch, length, length, channels)
    if tailed:
        # not by 0, which would leave nothing to compare
        x = x / random(batch, length, length, channels).abs().clamp(min=1e-6)
    mask = torch.ones(batch, length, length, device="cuda")
    if masked:
        mask = torch.randint(0, 2, mask.shape, device="cuda").float()
    shapes = [(channels,)] * 2 + [(channels, INNER)] * 5 + [(INNER,)] * 2 + [(INNER, channels)]
    return x, GateFirstWeights(*(random(*shape) for shape in shapes)), mask


def contest_floors(floors: Floors, batch: int, length: int, channels: int) -> dict[str, float]:
    positions = batch * length**2
    operations = 2 * positions * INNER * (6 * channels + length)
    # x and the result in float32; factors, gate and product in 16 bits, written and read
    return floors.of(positions * (8 * channels + 2 * 2 * 4 * INNER), operations)


def run_contest(floors: Floors, with_peers: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    ours: list[float] = []
    for case in CONTEST:
        given = contest(*case)
        operation = reference.gate_first_triangle_multiplication
        found, expected = kernel.gate_first_triangle_multiplication(*given), operation(*given)
        worst = float((found - expected).abs().max())
        agrees = torch.allclose(found, expected, rtol=2e-2, atol=2e-2)
        del found, expected
        calls: dict[str, Call] = {}
        if with_peers:
            compiled = torch.compile(operation, dynamic=False)

            def autocast(compiled: Call = compiled, given: Any = given) -> torch.Tensor:
                with torch.autocast("cuda", torch.bfloat16):
                    return compiled(*given)

            calls = {
                "PyTorch": lambda given=given: reference.gate_first_triangle_multiplication(*given),
                "torch.compile": autocast,
            }
        calls["ours"] = lambda given=given: kernel.gate_first_triangle_multiplication(*given)
        print_times(f"contest {case[:3]}", calls, contest_floors(floors, *case[:3]))
        ours.append(milliseconds(calls["ours"]))
        print(f"  worst difference {worst:.4f}, within the contest's tolerance: {agrees}", flush=True)
    print(f"contest: geometric mean of ours {geometric_mean(ours):.3f} ms", flush=True)


def alphafold(length: int, channels: int = 128) -> tuple[torch.Tensor, TriangleMultiplicationWeights]:
    c, dtype = channels, torch.bfloat16
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = TriangleMultiplicationWeights(*(random(*shape, dtype=dtype) for shape in shapes))
    return random(length, length, c, dtype=dtype), weights


def run_alphafold(floors: Floors, length: int, with_peers: bool) -> None:
    pair, weights = alphafold(length)
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
    print_times(f"AlphaFold2's form N {length} C {channels}", calls, limits)


def replayed(call: Call) -> Call:
    """The call as passes of up to 512 residues have it: one launch for all its kernels."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def cuequivariance(pair: torch.Tensor, weights: TriangleMultiplicationWeights) -> Call:
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
    """Triton's two kernels alone, for N and C; more than 128 channels are the contest's."""
    length, channels = size
    if channels > INNER:
        x, weights, mask = contest(1, length, channels, False, False)
        gate, dtype = weights.output_gate, torch.float16
    else:
        pair, weights = alphafold(length, channels)
        x, mask, gate, dtype = pair[None], None, None, torch.bfloat16
    inner = weights.left.shape[1]

    def part(name: str) -> dict[str, Any]:
        return kernel.choose_launch(
            "triangle_multiplication", x.new_empty(0, dtype=dtype), channels, gate_first=int(gate is not None)
        )[name]

    factors = kernel._factors(x, weights, mask, gate, dtype, part("operands"))
    result = torch.empty_like(x)
    gates = None if gate is None else factors[2 * inner :]
    return {
        "operands": lambda: kernel._factors(x, weights, mask, gate, dtype, part("operands")),
        "product": lambda: kernel._multiplied(factors, inner, True),
        "finish": lambda: kernel._launch_finish(
            factors[:inner], 1.0, gates, weights, x, result, False, part("finish")
        ),
    }


def passes_on_hopper(length: int, channels: int = 128) -> dict[str, Call]:
    """The two kernels that a Hopper GPU gets instead, and the product between them."""
    # needs the Triton that it is for
    from cuda.fused.triangle_multiplication import hopper

    pair, weights = alphafold(length, channels)
    mask = torch.ones_like(pair[..., 0])
    prepared = hopper.prepared(weights)
    tiles, result = hopper.positions_of(pair), torch.empty_like(pair)
    factors = hopper.operands(tiles, prepared, None)
    return {
        "operands": lambda: hopper.operands(tiles, prepared, None),
        "operands, masked": lambda: hopper.operands(tiles, prepared, mask),
        "product": lambda: multiplied(factors[:channels], factors[channels:], True),
        "finish": lambda: hopper.finish(factors[:channels], prepared, tiles, result, False),
        "finish, added": lambda: hopper.finish(factors[:channels], prepared, tiles, result, True),
    }


def contest_passes_on_hopper(length: int, channels: int) -> dict[str, Call]:
    """Those of the contest's form."""
    from cuda.fused.triangle_multiplication import hopper_gate_first as hopper

    x, weights, mask = contest(1, length, channels, False, False)
    prepared = hopper.prepared(weights)
    factors = hopper.operands(x, prepared, None)
    product, scale = hopper.product_of(factors, 1, True)
    return {
        "operands": lambda: hopper.operands(x, prepared, None),
        "operands, masked": lambda: hopper.operands(x, prepared, mask),
        "product": lambda: hopper.product_of(factors, 1, True),
        "finish": lambda: hopper.finish(product, scale, factors, prepared, x),
    }


def try_once(job: tuple[tuple[str, int, int], dict[str, Any]]) -> None:
    """Compile and run one launch."""
    (name, _, channels), options = job
    call = passes((64, channels))[name]
    using(kernel, {name: options}, call)()
    torch.cuda.synchronize()


def tune(tuner: Tuner, length: int, channels: int) -> None:
    """Print the best launches of each kernel."""
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
            lambda options, name=name: using(kernel, {name: options}, calls[name]),
            each,
        )


def main() -> None:
    """Print one line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024")
    parser.add_argument("--channels", default="64,128,384", help="that --tune is for")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    lengths = [int(n) for n in options.lengths.split(",")]
    if options.tune:
        tuner = Tuner(try_once)
        for length, channels in product(lengths, [int(c) for c in options.channels.split(",")]):
            tune(tuner, length, channels)
        return
    floors = Floors.measured()
    for length, channels in ((512, 128), (1024, 128), (1024, 384)):
        moved = prod((length, length, channels, 2))
        print_times(
            f"Triton's passes N {length} C {channels}", passes((length, channels)), floors.of(moved, 0)
        )
    if available(torch.empty(0, dtype=torch.bfloat16, device="cuda")):
        for length in lengths:
            moved = prod((length, length, 128, 2))
            print_times(f"Hopper's passes N {length} C 128", passes_on_hopper(length), floors.of(moved, 0))
        for length, channels in product(lengths, (128, 384)):
            print_times(
                f"Hopper's passes of the contest N {length} C {channels}",
                contest_passes_on_hopper(length, channels),
                contest_floors(floors, 1, length, channels),
            )
    for length in lengths:
        run_alphafold(floors, length, not options.no_peers)
    run_contest(floors, not options.no_peers)


if __name__ == "__main__":
    main()
