"""The operator of GPU MODE's contest "Triangle multiplicative update", with our kernels and in PyTorch.

    python -m benchmarks.contest

The operator differs from AlphaFold2's in having no biases and in gating before the output projection. It has
float32 input and output, 128 inner channels and a tolerance of 2e-2, which is checked against its float32
reference, including cases with a mask and with long-tailed input. Times are in milliseconds, without the
packing of weights. Compared with PyTorch and with torch.compile under bfloat16 autocast.
"""

import argparse
from statistics import geometric_mean
from typing import Any

import torch

from benchmarks.contest_kernels import GateFirstWeights, gate_first_triangle_multiplication
from benchmarks.fused_timing import Call, Floors, milliseconds, print_times, random
from cuda.fused.layer_norm.reference import layer_norm

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


def plain_operator(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
) -> torch.Tensor:
    """Compute W (LN(Σ_k a_ik · b_jk) ⊙ gate_ij) of every pair.

    Args:
        x: [B, N, N, C].
        weights: the layer's parameters.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: the contest's form; otherwise the sum is Σ_k a_kj · b_ki.

    Returns:
        [B, N, N, C].
    """
    normed = layer_norm(x, weights.norm_scale, weights.norm_offset)
    left = (normed @ weights.left) * torch.sigmoid(normed @ weights.left_gate)  # [B, N, N, M]
    right = (normed @ weights.right) * torch.sigmoid(normed @ weights.right_gate)
    if mask is not None:
        left, right = left * mask[..., None], right * mask[..., None]
    equation = "bikm,bjkm->bijm" if outgoing else "bkjm,bkim->bijm"
    product = layer_norm(torch.einsum(equation, left, right), weights.center_scale, weights.center_offset)
    return (product * torch.sigmoid(normed @ weights.output_gate)) @ weights.output


def random_case(batch: int, length: int, channels: int, masked: bool, tailed: bool) -> tuple[Any, ...]:
    """Return input, weights and mask of one of the contest's cases."""
    x = random(batch, length, length, channels, dtype=torch.float32)
    if tailed:
        # at least 1e-6, since dividing by 0 would leave nothing to compare
        x = x / random(*x.shape, dtype=x.dtype).abs().clamp(min=1e-6)
    mask = torch.ones(batch, length, length, device="cuda")
    if masked:
        mask = torch.randint(0, 2, mask.shape, device="cuda").float()
    shapes = [(channels,)] * 2 + [(channels, INNER)] * 5 + [(INNER,)] * 2 + [(INNER, channels)]
    return x, GateFirstWeights(*(random(*shape, dtype=x.dtype) for shape in shapes)), mask


def lower_bounds(floors: Floors, batch: int, length: int, channels: int) -> dict[str, float]:
    """Return lower bounds of a case's time in milliseconds."""
    positions = batch * length**2
    operations = 2 * positions * INNER * (6 * channels + length)
    # x and the result in float32; factors, gate and product in 16 bits, written and read
    return floors.of(positions * (8 * channels + 2 * 2 * 4 * INNER), operations)


def run_cases(floors: Floors) -> None:
    """Print a line for each case of the contest, and the geometric mean of our times."""
    torch.backends.cuda.matmul.allow_tf32 = False
    ours: list[float] = []
    for case in CONTEST:
        tensors = random_case(*case)
        result, expected = gate_first_triangle_multiplication(*tensors), plain_operator(*tensors)
        difference = float((result - expected).abs().max())
        agrees = torch.allclose(result, expected, rtol=2e-2, atol=2e-2)
        del result, expected
        compiled = torch.compile(plain_operator, dynamic=False)

        def autocast(compiled: Call = compiled, tensors: Any = tensors) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return compiled(*tensors)

        calls: dict[str, Call] = {
            "PyTorch": lambda tensors=tensors: plain_operator(*tensors),
            "torch.compile": autocast,
        }
        calls["ours"] = lambda tensors=tensors: gate_first_triangle_multiplication(*tensors)
        print_times(f"contest {case[:3]}", calls, lower_bounds(floors, *case[:3]))
        ours.append(milliseconds(calls["ours"]))
        print(f"  maximum difference {difference:.4f}, within the contest's tolerance: {agrees}", flush=True)
    print(f"contest: geometric mean of ours {geometric_mean(ours):.3f} ms", flush=True)


def main() -> None:
    """Print one line for each case."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    run_cases(Floors.measure())


if __name__ == "__main__":
    main()
