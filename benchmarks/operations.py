"""A benchmark of the operations of `cuda.fused`, in milliseconds, next to other implementations.

    python -m benchmarks.operations [OPERATION ...] [--sizes 512x128,1024x128] [--dtype float32] [--no-peers]

A size is N x C of a pair representation N × N with C channels (N for triangles, S x N x C for the outer
product mean, whose 32 inner channels give 128). The peers are plain PyTorch, torch.compile and, where they
apply and are installed, SDPA, FlexAttention and cuEquivariance. "ours" is the best kernel for the GPU,
"Triton" the one for any GPU, "in place" adds the update to the input, "ending" has axes swapped in memory,
and "in a graph" leaves out the launches' work on the CPU. Weights are packed at a layer's first call, as in
the network, which is not timed.

Floors are bytes at the speed of a copy, products at that of large bfloat16 matrices, and exponentials at 16
per clock cycle and multiprocessor. Attention, 4 heads × 32, is the core between the projections: peers take
queries, keys, values and bias; ours takes them as one projection, with gates.

GPU MODE's form of triangle multiplication is in contest.py, passes with gradients in training_kernels.py.
recipes/tune_kernels.py finds launch options.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.fused_timing import Call, Floors, cuequivariance_arguments, print_times, random, replayed
from cuda.fused import outer_product_mean, transition
from cuda.fused import triangle_multiplication as multiplication
from cuda.fused.dispatch import implementation_module
from cuda.fused.layer_norm import reference as layer_norm_reference
from cuda.fused.layer_norm import triton as layer_norm_triton
from cuda.fused.outer_product_mean import reference as outer_reference
from cuda.fused.outer_product_mean import triton as outer_triton
from cuda.fused.pair_bias import reference as pair_bias_reference
from cuda.fused.transition import reference as transition_reference
from cuda.fused.transition import triton as transition_triton
from cuda.fused.triangle_multiplication import reference as multiplication_reference

Size = tuple[int, ...]
HEADS, WIDTH, CHANNELS = 4, 32, 128
INNER = HEADS * WIDTH
# channels of the outer product mean
OUTER, PAIR = 32, 128
TRANSITION_FACTOR = 4


@dataclass(frozen=True)
class Line:
    """One line of output.

    Args:
        title: the operation with its size.
        calls: what is timed.
        moved: bytes that the operation reads and writes at least.
        operations: multiplications and additions of matrix products.
        exponentials: number of exponentials.
    """

    title: str
    calls: dict[str, Call]
    moved: float = 0.0
    operations: float = 0.0
    exponentials: float = 0.0

    def print(self, floors: Floors) -> None:
        """Time the calls, and print them next to the floors that apply."""
        limits = floors.of(self.moved, self.operations) if self.moved else {}
        if self.exponentials:
            device = torch.cuda.get_device_properties(0)
            limits["exponential floor"] = self.exponentials / (
                16 * device.multi_processor_count * device.clock_rate
            )
        print_times(self.title, self.calls, limits)


@dataclass(frozen=True)
class Operation:
    """One operation of the table.

    Args:
        sizes: default of --sizes.
        lines: returns the lines for a size, a dtype, and whether peers are timed.
    """

    sizes: str
    lines: Callable[[Size, torch.dtype, bool], list[Line]]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for the shapes of its first call."""
    return torch.compile(function, dynamic=False)


def peers_and_ours(
    with_peers: bool, reference: Callable[..., Any], inputs: tuple[Any, ...], ours: dict[str, Call]
) -> dict[str, Call]:
    """Return calls of the reference, of torch.compile, and ours."""
    if not with_peers:
        return ours
    whole = compiled(reference)
    return {"PyTorch": lambda: reference(*inputs), "torch.compile": lambda: whole(*inputs)} | ours


def layer_norm_inputs(size: Size, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    """Return the pair representation, scale and offset for N and C."""
    length, channels = size
    return tuple(
        random(*shape, dtype=dtype) for shape in ((length, length, channels), (channels,), (channels,))
    )


def layer_norm_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of LayerNorm over the channels."""
    inputs = layer_norm_inputs(size, dtype)
    ours = {"ours": lambda: layer_norm_triton.layer_norm(*inputs)}
    calls = peers_and_ours(with_peers, layer_norm_reference.layer_norm, inputs, ours)
    moved = 2 * inputs[0].numel() * dtype.itemsize
    return [Line("LayerNorm N {} C {}".format(*size), calls, moved)]


def pair_bias_inputs(size: Size) -> tuple[torch.Tensor, ...]:
    """Return the pair representation, LayerNorm's scale and offset, and weights for N and C."""
    length, channels = size
    shapes: list[Size] = [(length, length, channels), (channels,), (channels,), (channels, HEADS)]
    return tuple(random(*shape, scale=1.0) for shape in shapes)


def pair_bias_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of attention's pair bias, LayerNorm and a projection to heads."""
    kernel = implementation_module("pair_bias", device="cuda")
    pair, *layer = inputs = pair_bias_inputs(size)
    swapped = pair.transpose(0, 1)
    ours = {
        "ours": lambda: kernel.pair_bias(pair, *layer),
        "ending": lambda: kernel.pair_bias(swapped, *layer),
    }
    calls = peers_and_ours(with_peers, pair_bias_reference.pair_bias, inputs, ours)
    return [Line("pair bias N {} C {}".format(*size), calls, 2 * size[0] ** 2 * (size[1] + HEADS))]


def transition_inputs(
    size: Size, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, transition.TransitionWeights]:
    """Return the pair representation and weights for N and C."""
    length, channels = size
    width = TRANSITION_FACTOR * channels
    shapes = [(channels,), (channels,), (channels, width), (width,), (width, channels), (channels,)]
    weights = [random(*shape, scale=shape[0] ** -0.5, dtype=dtype) for shape in shapes]
    return random(length, length, channels, dtype=dtype), transition.TransitionWeights(*weights)


def whole_transition(x: torch.Tensor, w: transition.TransitionWeights) -> torch.Tensor:
    """Compute the transition without chunks."""
    normed = F.layer_norm(x, x.shape[-1:], w.norm_scale, w.norm_offset)
    return torch.relu(normed @ w.widen + w.widen_bias) @ w.narrow + w.narrow_bias


def transition_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of the transition; the reference works in chunks of rows, torch.compile on all."""
    kernel = implementation_module("transition", device="cuda")
    x, weights = transition_inputs(size, dtype)
    calls: dict[str, Call] = {}
    if with_peers:
        whole = compiled(whole_transition)
        calls["PyTorch"] = lambda: transition_reference.transition(x, weights)
        calls["torch.compile"] = lambda: whole(x, weights)
    calls["ours"] = lambda: kernel.transition(x, weights)
    calls["ours in place"] = lambda: kernel.transition(x, weights, add=True)
    calls["Triton in place"] = lambda: transition_triton.transition(x, weights, add=True)
    operations = 4 * x.numel() * TRANSITION_FACTOR * size[1]
    return [Line("transition N {} C {}".format(*size), calls, 2 * x.numel() * dtype.itemsize, operations)]


def outer_inputs(
    size: Size, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, outer_product_mean.OuterProductMeanWeights, torch.Tensor]:
    """Return the MSA, weights and mask for S, N and C."""
    sequences, length, channels = size
    shapes = [(channels,), (channels,), (channels, OUTER), (OUTER,), (channels, OUTER), (OUTER,)]
    shapes += [(OUTER, OUTER, PAIR), (PAIR,)]
    weights = [random(*shape, scale=shape[0] ** -0.5, dtype=dtype) for shape in shapes]
    mask = torch.ones(sequences, length, device="cuda")
    return random(*size, dtype=dtype), outer_product_mean.OuterProductMeanWeights(*weights), mask


def outer_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of the outer product mean; the reference works in chunks of residues."""
    kernel = implementation_module("outer_product_mean", device="cuda")
    sequences, length, channels = size
    inputs = (random(length, length, PAIR, dtype=dtype), *outer_inputs(size, dtype))
    ours = {
        "ours": lambda: kernel.add_outer_product_mean(*inputs),
        "Triton": lambda: outer_triton.add_outer_product_mean(*inputs),
    }
    calls = peers_and_ours(with_peers, outer_reference.add_outer_product_mean, inputs, ours)
    # the MSA read, the factors written and read, the pair representation updated
    moved = dtype.itemsize * (sequences * length * (channels + 4 * OUTER) + 2 * length**2 * PAIR)
    operations = 2 * length**2 * OUTER**2 * (sequences + PAIR)
    return [Line("outer product mean S {} N {} C {}".format(*size), calls, moved, operations)]


def multiplication_inputs(size: Size) -> tuple[torch.Tensor, multiplication.TriangleMultiplicationWeights]:
    """Return the pair representation and weights for N and C (128 if not given)."""
    length, c = (*size, CHANNELS)[:2]
    shapes: list[Size] = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    weights = multiplication.TriangleMultiplicationWeights(*(random(*shape) for shape in shapes))
    return random(length, length, c), weights


def multiplication_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of triangle multiplication."""
    kernel = implementation_module("triangle_multiplication", device="cuda")
    pair, weights = multiplication_inputs(size)
    length, channels = pair.shape[1:]
    title = f"N {length} C {channels}"
    calls: dict[str, Call] = {}
    if with_peers:
        whole = compiled(multiplication_reference.triangle_multiplication)
        calls["PyTorch"] = lambda: multiplication_reference.triangle_multiplication(
            pair, weights, outgoing=True
        )
        calls["torch.compile"] = lambda: whole(pair, weights, outgoing=True)
        if find_spec("cuequivariance_torch") is not None:
            from cuequivariance_torch import triangle_multiplicative_update

            named = {name: x.contiguous() for name, x in cuequivariance_arguments(weights).items()}
            calls["cuEquivariance"] = lambda: triangle_multiplicative_update(pair[None], "outgoing", **named)
    for name, outgoing in (("outgoing", True), ("incoming", False)):
        calls[f"ours, {name}"] = lambda outgoing=outgoing: kernel.triangle_multiplication(
            pair, weights, outgoing=outgoing
        )
    mask = torch.ones(length, length, device="cuda", dtype=pair.dtype)
    calls["ours in place, masked"] = lambda: kernel.triangle_multiplication(
        pair, weights, mask, outgoing=True, add=True
    )
    calls["ours in a graph"] = replayed(calls["ours, outgoing"])
    operations = 2 * length**2 * channels * (6 * channels + length)
    return [Line(f"triangle multiplication {title}", calls, 18 * length**2 * channels, operations)]


def attention_core(length: int, implementation: str = "auto") -> Call:
    """Return a call of our attention between the projections."""
    kernel = implementation_module("attention", implementation, "cuda")
    projected, gated = random(length, length, 4 * INNER), random(length, length, INNER)
    gating_bias, bias = random(HEADS, WIDTH, scale=1.0), random(HEADS, length, length)
    return lambda: kernel.attend(projected, gating_bias, None, bias, gated)


def attend_eagerly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute attention as plain PyTorch does."""
    logits = q @ k.transpose(-1, -2) * WIDTH**-0.5 + bias
    return torch.softmax(logits.float(), -1).to(q.dtype) @ v


def attention_peers(length: int) -> dict[str, Call]:
    """Return calls of other implementations of the core of attention."""
    q, k, v = (random(length, HEADS, length, WIDTH) for _ in range(3))
    bias = random(HEADS, length, length)
    calls: dict[str, Call] = {}
    if length <= 1024:
        calls = peers_and_ours(True, attend_eagerly, (q, k, v, bias), {})
    calls["SDPA"] = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
    flexible = compiled(flex_attention)
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


def attention_lines(size: Size, dtype: torch.dtype, with_peers: bool) -> list[Line]:
    """Return the line of triangle attention between the projections."""
    (length,) = size
    calls = attention_peers(length) if with_peers else {}
    calls["ours"] = attention_core(length)
    for name in ("FlexAttention", "cuEquivariance", "ours"):
        if name in calls:
            calls[f"{name} in a graph"] = replayed(calls[name])
    cells = HEADS * length**3
    moved, operations = 12 * length**2 * INNER, 4 * WIDTH * cells
    return [Line(f"triangle attention N {length}", calls, moved, operations, cells)]


OPERATIONS = {
    "layer_norm": Operation("512x128,1024x128,2048x128,1024x256", layer_norm_lines),
    "pair_bias": Operation("512x128,1024x128,2048x128", pair_bias_lines),
    "transition": Operation("512x128,1024x64,1024x128,1024x256", transition_lines),
    "outer_product_mean": Operation("512x512x256,5120x512x64,512x1024x256,5120x1024x64", outer_lines),
    "triangle_multiplication": Operation("256x128,384x128,512x128,1024x128", multiplication_lines),
    "triangle_attention": Operation("256,384,512,1024,2048", attention_lines),
}


def main() -> None:
    """Print the lines of each operation and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=f"of {', '.join(OPERATIONS)}")
    parser.add_argument("--sizes", help="sizes of one operation, such as 512x128,1024x128")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    names = options.operations or list(OPERATIONS)
    if unknown := [name for name in names if name not in OPERATIONS]:
        parser.error(f"unknown operation {unknown[0]}; known: {', '.join(OPERATIONS)}")
    if options.sizes and len(names) > 1:
        parser.error("--sizes needs one operation")
    floors = Floors.measure()
    for name in names:
        operation = OPERATIONS[name]
        for text in (options.sizes or operation.sizes).split(","):
            size = tuple(int(n) for n in text.split("x"))
            for line in operation.lines(size, getattr(torch, options.dtype), not options.no_peers):
                line.print(floors)


if __name__ == "__main__":
    main()
