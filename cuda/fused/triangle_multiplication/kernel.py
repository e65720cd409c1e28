"""The triangle multiplication in three passes: operands, matrix product, result.

The first kernel normalises the pair representation, projects, gates and masks it, and writes the two factors
channel by channel, so that the product is a plain batch of matrix products for the tensor cores; the second
normalises that product over its channels as it lies, projects and gates it. Nothing else of the size of the
pair representation is in memory.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from cuda.fused.blocks import check_tensors, matrix_tiles, normalised, sigmoid
from cuda.fused.hopper import available
from cuda.fused.launch_table import choose_launch
from cuda.fused.layer_norm.reference import EPSILON
from cuda.fused.packing import by_turns, cast
from cuda.fused.triangle_multiplication.product import multiplied
from cuda.fused.triangle_multiplication.product import padded as padded_length
from cuda.fused.triangle_multiplication.reference import (
    GateFirstWeights,
    TriangleMultiplicationWeights,
)
from cuda.fused.triangle_multiplication.tiles import channels_of, normed, places_of, projected, tile_of


@triton.jit
def _operands(
    x, x_strides, mask, mask_strides, norm_scale, norm_offset, gated, gated_bias, output_gate, out, plane,
    positions, padded, length, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, POSITIONS: tl.constexpr,
    INNER: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ mask, left then right, to out [2*M, B, padded, padded].

    gated has a column of W and one of G for each channel by turns, so that a thread has both. With an output
    gate, its sigmoid follows as M more channels.
    """
    DTYPE: tl.constexpr = out.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    flat = start + tl.arange(0, POSITIONS)
    places, real = places_of(start, positions, padded, length, x_strides, POSITIONS, ROWS)
    rows = x + places
    kept = real.to(tl.float32)
    if mask is not None:
        mask_places, _ = places_of(start, positions, padded, length, mask_strides, POSITIONS, ROWS)
        kept = tl.load(mask + mask_places, mask=real, other=0.0).to(tl.float32)
    parts = normed(rows, real, norm_scale, norm_offset, DTYPE, CHANNELS, CHUNK)
    out += flat[:, None]
    stored = (flat < positions)[:, None]
    for first in range(0, 2 * WIDTH, INNER):
        both = projected(
            parts, gated, gated_bias, 2 * first, CHANNELS, 4 * WIDTH, 2 * INNER, CHUNK, PRECISION
        )
        values, gates = tl.split(both.reshape(POSITIONS, INNER, 2))
        values *= sigmoid(gates) * kept[:, None]
        channel = first + tl.arange(0, INNER)
        place = channel.to(tl.int64)[None, :] * plane
        tl.store(out + place, values.to(DTYPE), mask=stored & (channel < 2 * WIDTH)[None, :])
    if output_gate is not None:
        for first in range(0, WIDTH, INNER):
            gates = projected(parts, output_gate, None, first, CHANNELS, WIDTH, INNER, CHUNK, PRECISION)
            channel = first + tl.arange(0, INNER)
            place = (2 * WIDTH + channel).to(tl.int64)[None, :] * plane
            tl.store(out + place, sigmoid(gates).to(DTYPE), mask=stored & (channel < WIDTH)[None, :])


@triton.jit
def _finish(
    product, plane, gates, epsilon, center_scale, center_offset, output, output_bias, x, x_strides,
    norm_scale, norm_offset, gating, gating_bias, result, result_strides, positions, padded, length,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ADD: tl.constexpr, POSITIONS: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The projection of LN(product [M, B, padded, padded]) to result [B, N, N, C].

    Gates [M, B, padded, padded] multiply before the projection; where there are none, sigmoid(LN(x) G + c)
    multiplies after it. ADD adds x, which may be the result. output is a descriptor of [BLOCK_WIDTH, OUTPUTS]
    tiles, gating one of [BLOCK, OUTPUTS].
    """
    DTYPE: tl.constexpr = product.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    flat = start + tl.arange(0, POSITIONS)
    inner = tl.arange(0, BLOCK_WIDTH)
    there = (inner < WIDTH)[:, None] & (flat < positions)[None, :]
    planes = inner.to(tl.int64)[:, None] * plane + flat[None, :]
    centred = normalised(
        tl.trans(tl.load(product + planes, mask=there, other=0.0)).to(tl.float32),
        (inner < WIDTH)[None, :],
        channels_of(center_scale, 0, WIDTH, BLOCK_WIDTH),
        channels_of(center_offset, 0, WIDTH, BLOCK_WIDTH),
        WIDTH,
        epsilon,
    )  # [positions, M]
    if gates is not None:
        centred *= tl.trans(tl.load(gates + planes, mask=there, other=0.0)).to(tl.float32)
    centred = centred.to(DTYPE)
    places, real = places_of(start, positions, padded, length, result_strides, POSITIONS, ROWS)
    rows = None
    parts = ()
    if gating is not None:
        x_places, _ = places_of(start, positions, padded, length, x_strides, POSITIONS, ROWS)
        rows = x + x_places
        parts = normed(rows, real, norm_scale, norm_offset, DTYPE, CHANNELS, BLOCK)
    for column in range(0, CHANNELS, OUTPUTS):
        update = tl.dot(centred, output.load([0, column]), input_precision=PRECISION)
        if gating is not None:
            gate = projected(
                parts, gating, gating_bias, column, CHANNELS, CHANNELS, OUTPUTS, BLOCK, PRECISION
            )
            update = (update + channels_of(output_bias, column, CHANNELS, OUTPUTS)[None, :]) * sigmoid(gate)
        if ADD:
            update += tile_of(rows, real, column, CHANNELS, OUTPUTS)
        channel = column + tl.arange(0, OUTPUTS)
        tl.store(
            result + places[:, None] + channel[None, :],
            update.to(result.dtype.element_ty),
            mask=real[:, None] & (channel < CHANNELS)[None, :],
        )


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    budget: int | None = None,
) -> torch.Tensor:
    """The update of AlphaFold2's form; as the reference, whose arguments it takes.

    Args:
        pair: [N, N, C], C at most 256, channels contiguous.
        weights: the layer's parameters, of pair's dtype.
        mask: [N, N], 1 for real pairs, or None for all.
        outgoing: whether edges leave i and j (Algorithm 11) or enter them (Algorithm 12).
        budget: taken for the reference's sake; beside the factors and their product there is nothing to
            bound.

    Returns:
        [N, N, C], the update.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    return _gate_after(pair, weights, mask, outgoing, in_place=False)


def add_triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    budget: int | None = None,
) -> torch.Tensor:
    """Add the update to pair in place; the sum is rounded once. Args and raises as `triangle_multiplication`.

    Returns:
        pair.
    """
    return _gate_after(pair, weights, mask, outgoing, in_place=True)


def _gate_after(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None,
    outgoing: bool,
    *,
    in_place: bool,
) -> torch.Tensor:
    channels, width = weights.left.shape
    if max(channels, width) > 256 or pair.stride(-1) != 1:
        raise ValueError(
            f"fused triangle multiplication takes at most 256 contiguous channels, "
            f"not {channels} and {width} in strides {pair.stride()}"
        )
    result = pair if in_place else torch.empty_like(pair)
    if available(pair):
        # needs the Triton that it is for
        from cuda.fused.triangle_multiplication import hopper

        if hopper.suits(pair, channels, width):
            return hopper.write_update(pair, weights, mask, outgoing, result, in_place)
    check_tensors("triangle_multiplication", pair, *weights)
    x = pair[None]
    mask = None if mask is None else mask[None]
    options = choose_launch("triangle_multiplication", pair, channels, gate_first=0)
    factors = _factors(x, weights, mask, None, pair.dtype, options["operands"])
    product, scale = _multiplied(factors, width, outgoing)
    del factors
    _launch_finish(product, scale, None, weights, x, result[None], in_place, options["finish"])
    return result


def gate_first_triangle_multiplication(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
    operands: torch.dtype = torch.float16,
) -> torch.Tensor:
    """The operator of GPU MODE's contest; as the reference, whose arguments it takes.

    Args:
        x: [B, N, N, C], channels contiguous.
        weights: the layer's parameters, of any float dtype.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: whether the product is over k of (i, k) and (j, k), the contest's, or of (k, i) and (k, j).
        operands: dtype that matrix products take; sums and statistics are float32. Normalised inputs and
            gated values stay far inside float16's range, and it rounds eight times finer than bfloat16.

    Returns:
        [B, N, N, C], of x's dtype.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    check_tensors("triangle_multiplication", x)
    channels, width = weights.left.shape
    if width > 256 or x.stride(-1) != 1:
        raise ValueError(f"fused triangle multiplication takes at most 256 inner channels, not {width}")
    like = x.new_empty(0, dtype=operands)
    if available(like):
        # needs the Triton that it is for
        from cuda.fused.triangle_multiplication import hopper_gate_first

        if hopper_gate_first.suits(x, width, operands):
            return hopper_gate_first.update(x, weights, mask, outgoing)
    options = choose_launch("triangle_multiplication", like, channels, gate_first=1)
    factors = _factors(x, weights, mask, weights.output_gate, operands, options["operands"])
    product, scale = _multiplied(factors, width, outgoing)
    result = torch.empty_like(x)
    _launch_finish(product, scale, factors[2 * width :], weights, x, result, False, options["finish"])
    return result


def _factors(
    x: torch.Tensor,
    weights: TriangleMultiplicationWeights | GateFirstWeights,
    mask: torch.Tensor | None,
    output_gate: torch.Tensor | None,
    dtype: torch.dtype,
    options: dict[str, Any],
) -> torch.Tensor:
    """Left and right factor and, with an output gate, its sigmoid: [2*M or 3*M, B, padded, padded]."""
    batch, length, _, channels = x.shape
    width = weights.left.shape[1]
    padded = padded_length(length)
    count = 2 if output_gate is None else 3
    out = torch.empty(count * width, batch, padded, padded, dtype=dtype, device=x.device)
    gated = by_turns(weights.left, weights.left_gate, weights.right, weights.right_gate, dtype=dtype)
    gated_bias = None
    if isinstance(weights, TriangleMultiplicationWeights):
        gated_bias = by_turns(
            weights.left_bias, weights.left_gate_bias, weights.right_bias, weights.right_gate_bias
        )
    chunk, inner = min(options["CHUNK"], _block(channels)), options["INNER"]
    positions = batch * padded * padded
    if positions:
        _operands[(triton.cdiv(positions, options["POSITIONS"]),)](
            x,
            x.stride()[:3],
            mask,
            None if mask is None else mask.stride(),
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            matrix_tiles(gated, chunk, 2 * inner),
            gated_bias,
            None if output_gate is None else matrix_tiles(cast(output_gate, dtype), chunk, inner),
            out,
            positions,
            positions,
            padded,
            length,
            CHANNELS=channels,
            WIDTH=width,
            ROWS=triton.cdiv(options["POSITIONS"], padded),
            **(options | {"CHUNK": chunk}),
        )
    return out


def _multiplied(factors: torch.Tensor, width: int, outgoing: bool) -> tuple[torch.Tensor, float]:
    """The product [M, B, padded, padded] of the factors, scaled, and the scale."""
    left, right = factors[:width].flatten(0, 1), factors[width : 2 * width].flatten(0, 1)
    product, scale = multiplied(left, right, outgoing)
    return product.unflatten(0, (width, -1)), scale


def _launch_finish(
    product: torch.Tensor,
    scale: float,
    gates: torch.Tensor | None,
    weights: TriangleMultiplicationWeights | GateFirstWeights,
    x: torch.Tensor,
    result: torch.Tensor,
    add: bool,
    options: dict[str, Any],
) -> None:
    """Write the result [B, N, N, C] of the scaled product.

    Gates are [M, B, padded, padded], or those of the weights.
    """
    width, batch, padded, _ = product.shape
    channels = x.shape[-1]
    after = weights if isinstance(weights, TriangleMultiplicationWeights) else None
    positions = batch * padded * padded
    if positions:
        _finish[(triton.cdiv(positions, options["POSITIONS"]),)](
            product,
            positions,
            gates,
            EPSILON * scale**2,
            weights.center_scale.contiguous(),
            weights.center_offset.contiguous(),
            matrix_tiles(cast(weights.output, product.dtype), _block(width), options["OUTPUTS"]),
            None if after is None else after.output_bias.contiguous(),
            x,
            x.stride()[:3],
            None if after is None else after.norm_scale.contiguous(),
            None if after is None else after.norm_offset.contiguous(),
            None if after is None else matrix_tiles(after.gating, _block(channels), options["OUTPUTS"]),
            None if after is None else after.gating_bias.contiguous(),
            result,
            result.stride()[:3],
            positions,
            padded,
            x.shape[1],
            CHANNELS=channels,
            WIDTH=width,
            BLOCK=_block(channels),
            BLOCK_WIDTH=_block(width),
            ADD=add,
            ROWS=triton.cdiv(options["POSITIONS"], padded),
            **options,
        )


def _block(channels: int) -> int:
    """The tile's channels: powers of two, and no product has fewer than 16 terms."""
    return max(16, triton.next_power_of_2(channels))
