"""Triangle multiplication with gradients: kernels in Triton between matrix products of the GPU's own library.

Projections have channels last, the factors and their product channels first, so that the product is a batch
of matrix products. The kernels gate or normalise while they transpose, and read and write each element once.
P counts the positions of all samples, B · N · N.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from cuda.fused import LAYER_NORM_EPSILON
from cuda.fused.launch import check_tensors
from cuda.fused.matrix_products import wide_product
from cuda.fused.row_sums import sum_rows
from cuda.fused.rows import sigmoid
from cuda.fused.triangle_multiplication.triton import product_scale, scaled_product

# positions of a program, and warps: the tiles of a transposition have whole cache lines on both sides
POSITIONS = 64
CHANNEL_BLOCK = 64


@triton.jit
def _load_factor_tile(projected, position, channel, real, CHANNELS: tl.constexpr, STRIDE: tl.constexpr):
    """Load values and sigmoids of gates of some positions and channels, float32, and their offsets."""
    offsets = position.to(tl.int64)[:, None] * STRIDE + channel[None, :]
    inside = real[:, None] & (channel < CHANNELS)[None, :]
    value = tl.load(projected + offsets, mask=inside, other=0.0).to(tl.float32)
    gate = sigmoid(tl.load(projected + offsets + CHANNELS, mask=inside, other=0.0).to(tl.float32))
    return value, gate, offsets, inside


@triton.jit
def gate_factors(
    projected, mask, factors, count, CHANNELS: tl.constexpr, STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write values ⊙ sigmoid(gates) ⊙ mask to factors [CHANNELS, P].

    projected is [P, STRIDE]: CHANNELS values, then CHANNELS gates.
    """
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = position < count
    value, gate, _, inside = _load_factor_tile(projected, position, channel, real, CHANNELS, STRIDE)
    keep = tl.load(mask + position, mask=real, other=0.0).to(tl.float32)
    result = value * gate * keep[:, None]
    out = factors + channel.to(tl.int64)[None, :] * count + position[:, None]
    tl.store(out, result.to(factors.dtype.element_ty), mask=inside)


@triton.jit
def gate_factors_backward(
    projected, mask, gradient, projected_gradient, partial_sums, sums_stride, count, CHANNELS: tl.constexpr,
    STRIDE: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of values and gates from the gradient of the factors [CHANNELS, P].

    Their sums over the positions of a program go to partial_sums [programs, sums_stride].
    """
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = position < count
    value, gate, offsets, inside = _load_factor_tile(projected, position, channel, real, CHANNELS, STRIDE)
    keep = tl.load(mask + position, mask=real, other=0.0).to(tl.float32)
    source = gradient + channel.to(tl.int64)[None, :] * count + position[:, None]
    upstream = tl.load(source, mask=inside, other=0.0).to(tl.float32) * keep[:, None]
    value_gradient = upstream * gate
    gate_gradient = value_gradient * value * (1.0 - gate)
    dtype: tl.constexpr = projected_gradient.dtype.element_ty
    tl.store(projected_gradient + offsets, value_gradient.to(dtype), mask=inside)
    tl.store(projected_gradient + offsets + CHANNELS, gate_gradient.to(dtype), mask=inside)
    out = partial_sums + tl.program_id(0) * sums_stride + channel
    tl.store(out, tl.sum(value_gradient, 0), mask=channel < CHANNELS)
    tl.store(out + CHANNELS, tl.sum(gate_gradient, 0), mask=channel < CHANNELS)


@triton.jit
def _load_gate(projected, position, channel, inside, START: tl.constexpr, STRIDE: tl.constexpr):
    """Load the sigmoids of the gates of the update, and their offsets."""
    offsets = position.to(tl.int64)[:, None] * STRIDE + START + channel[None, :]
    return sigmoid(tl.load(projected + offsets, mask=inside, other=0.0).to(tl.float32)), offsets


@triton.jit
def gate_update(
    update, projected, count, CHANNELS: tl.constexpr, START: tl.constexpr, STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Multiply update [P, CHANNELS] in place by sigmoids of gates, from START on in projected [P, STRIDE]."""
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.arange(0, BLOCK)
    inside = (position < count)[:, None] & (channel < CHANNELS)[None, :]
    gate, _ = _load_gate(projected, position, channel, inside, START, STRIDE)
    pointers = update + position.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    result = tl.load(pointers, mask=inside, other=0.0).to(tl.float32) * gate
    tl.store(pointers, result.to(update.dtype.element_ty), mask=inside)


@triton.jit
def gate_update_backward(
    gradient, update, projected, ungated_gradient, projected_gradient, partial_sums, count,
    CHANNELS: tl.constexpr, START: tl.constexpr, STRIDE: tl.constexpr, POSITIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the ungated update and of the gates, given the gated update and its gradient.

    Their sums over the positions of a program go to partial_sums [programs, STRIDE + CHANNELS]: those of the
    gates from START on, those of the ungated update from STRIDE on.
    """
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.arange(0, BLOCK)
    inside = (position < count)[:, None] & (channel < CHANNELS)[None, :]
    gate, gate_offsets = _load_gate(projected, position, channel, inside, START, STRIDE)
    offsets = position.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    upstream = tl.load(gradient + offsets, mask=inside, other=0.0).to(tl.float32)
    result = tl.load(update + offsets, mask=inside, other=0.0).to(tl.float32)
    gate_gradient = upstream * result * (1.0 - gate)
    upstream *= gate
    dtype: tl.constexpr = projected_gradient.dtype.element_ty
    tl.store(ungated_gradient + offsets, upstream.to(dtype), mask=inside)
    tl.store(projected_gradient + gate_offsets, gate_gradient.to(dtype), mask=inside)
    out = partial_sums + tl.program_id(0) * (STRIDE + CHANNELS) + channel
    tl.store(out + START, tl.sum(gate_gradient, 0), mask=channel < CHANNELS)
    tl.store(out + STRIDE, tl.sum(upstream, 0), mask=channel < CHANNELS)


@triton.jit
def _load_product(product, position, channel, real, count, CHANNELS: tl.constexpr):
    """Load positions of the product [CHANNELS, P] as float32 [positions, channels]."""
    inside = real[:, None] & (channel < CHANNELS)[None, :]
    offsets = channel.to(tl.int64)[None, :] * count + position[:, None]
    return tl.load(product + offsets, mask=inside, other=0.0).to(tl.float32), offsets, inside


@triton.jit
def normalise_product(
    product, scale, offset, result, statistics, count, epsilon, CHANNELS: tl.constexpr,
    POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write LN(product [CHANNELS, P]) to result [P, CHANNELS], and mean and deviation⁻¹ [2, P]."""
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.arange(0, BLOCK)
    real = position < count
    x, _, inside = _load_product(product, position, channel, real, count, CHANNELS)
    mean = tl.sum(x, 1) / CHANNELS
    centred = tl.where(inside, x - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / CHANNELS + epsilon)
    tl.store(statistics + position, mean, mask=real)
    tl.store(statistics + count + position, inverse, mask=real)
    channels = channel < CHANNELS
    factor = tl.load(scale + channel, mask=channels, other=0.0).to(tl.float32)
    shift = tl.load(offset + channel, mask=channels, other=0.0).to(tl.float32)
    normed = centred * inverse[:, None] * factor[None, :] + shift[None, :]
    out = result + position.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(out, normed.to(result.dtype.element_ty), mask=inside)


@triton.jit
def normalise_product_backward(
    product, scale, statistics, gradient, product_gradient, partial_sums, count, CHANNELS: tl.constexpr,
    POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the product [CHANNELS, P], and partial sums [programs, 2, CHANNELS].

    The sums are those of the gradients of scale and offset.
    """
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.arange(0, BLOCK)
    channels = channel < CHANNELS
    real = position < count
    x, offsets, inside = _load_product(product, position, channel, real, count, CHANNELS)
    mean = tl.load(statistics + position, mask=real, other=0.0)
    inverse = tl.load(statistics + count + position, mask=real, other=0.0)
    normed = tl.where(inside, (x - mean[:, None]) * inverse[:, None], 0.0)
    source = gradient + position.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    upstream = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    out = partial_sums + tl.program_id(0) * 2 * CHANNELS + channel
    tl.store(out, tl.sum(upstream * normed, 0), mask=channels)
    tl.store(out + CHANNELS, tl.sum(upstream, 0), mask=channels)
    upstream *= tl.load(scale + channel, mask=channels, other=0.0).to(tl.float32)[None, :]
    first = tl.sum(upstream, 1) / CHANNELS
    second = tl.sum(upstream * normed, 1) / CHANNELS
    result = (upstream - first[:, None] - normed * second[:, None]) * inverse[:, None]
    tl.store(product_gradient + offsets, result.to(product_gradient.dtype.element_ty), mask=inside)


class Saved(NamedTuple):
    """Intermediates of the forward pass that the backward pass uses.

    Args:
        projected: [P, 4*M+C], values and gates of both factors, and gates of the update.
        factors: [2*M, B, N, N].
        product: [M, B, N, N], scaled down in float16.
        statistics: [2, P] float32, of the product's LayerNorm.
        centered: [P, M], the normalised product.
        update: [P, C], the result.
    """

    projected: torch.Tensor
    factors: torch.Tensor
    product: torch.Tensor
    statistics: torch.Tensor
    centered: torch.Tensor
    update: torch.Tensor


def _warps(channels: int) -> int:
    """Return the warps of programs with all channels of POSITIONS positions, as measured on an H200."""
    return 4 if channels >= 128 else 8


def update(
    normed: torch.Tensor,
    mask: torch.Tensor,
    projection: torch.Tensor,
    bias: torch.Tensor,
    center_scale: torch.Tensor,
    center_offset: torch.Tensor,
    output: torch.Tensor,
    output_bias: torch.Tensor,
    outgoing: bool,
) -> Saved:
    """Compute the update of triangle multiplication from the normalised pair representation [B, N, N, C].

    The pair and its mask [B, N, N] are contiguous. The projection [C, 4*M+C], with a bias, is that of left
    and right values, left and right gates, and gates of the update; the output [M, C] has one, too. Edges
    leave i and j if outgoing (Algorithm 11), or enter them (Algorithm 12).

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    check_tensors("triangle_multiplication", normed, projection, bias, output)
    batch, length, _, channels = normed.shape
    width, count = output.shape[0], normed[..., 0].numel()
    projected = torch.addmm(bias, normed.view(count, channels), projection)
    factors = normed.new_empty(2 * width, batch, length, length)
    blocks, stride = triton.cdiv(count, POSITIONS), projected.shape[1]
    gate_factors[(blocks, triton.cdiv(2 * width, CHANNEL_BLOCK))](
        projected, mask, factors, count, CHANNELS=2 * width, STRIDE=stride, POSITIONS=POSITIONS,
        BLOCK=CHANNEL_BLOCK,
    )  # fmt: skip
    left, right = (x.flatten(0, 1) for x in factors.split(width))
    product, scale = scaled_product(left, right, outgoing)
    product = product.view(width, batch, length, length)
    statistics = normed.new_empty(2, count, dtype=torch.float32)
    centered = normed.new_empty(count, width)
    normalise_product[(blocks,)](
        product, center_scale, center_offset, centered, statistics, count, LAYER_NORM_EPSILON * scale**2,
        CHANNELS=width, POSITIONS=POSITIONS, BLOCK=triton.next_power_of_2(width), num_warps=_warps(width),
    )  # fmt: skip
    result = torch.addmm(output_bias, centered, output)
    gate_update[(blocks,)](
        result, projected, count, CHANNELS=channels, START=4 * width, STRIDE=stride, POSITIONS=POSITIONS,
        BLOCK=triton.next_power_of_2(channels), num_warps=8,
    )  # fmt: skip
    return Saved(projected, factors, product, statistics, centered, result)


def update_backward(
    gradient: torch.Tensor,
    normed: torch.Tensor,
    mask: torch.Tensor,
    projection: torch.Tensor,
    center_scale: torch.Tensor,
    output: torch.Tensor,
    saved: Saved,
    outgoing: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of `update`, given that of the result, [P, C], contiguous.

    Returns:
        normed: [B, N, N, C], of the input's dtype.
        projection: [C, 4*M+C], at least float32.
        output: [M, C], at least float32.
        biases: [4*M+2*C] float32, those of bias and output_bias.
        center: [2, M] float32, those of center_scale and center_offset.
    """
    count, channels = gradient.shape
    width, stride = output.shape[0], projection.shape[1]
    blocks = triton.cdiv(count, POSITIONS)
    wide_block = triton.next_power_of_2(channels)
    sums = {"dtype": torch.float32, "device": gradient.device}
    partial_sums = torch.empty(blocks, stride + channels, **sums)
    ungated, projected_gradient = torch.empty_like(gradient), torch.empty_like(saved.projected)
    gate_update_backward[(blocks,)](
        gradient, saved.update, saved.projected, ungated, projected_gradient, partial_sums, count,
        CHANNELS=channels, START=4 * width, STRIDE=stride, POSITIONS=POSITIONS, BLOCK=wide_block,
        num_warps=_warps(channels),
    )  # fmt: skip
    output_gradient = wide_product(saved.centered.mT, ungated)
    centered_gradient = ungated @ output.mT
    product_gradient = torch.empty_like(saved.product)
    norm_sums = torch.empty(blocks, 2, width, **sums)
    normalise_product_backward[(blocks,)](
        saved.product, center_scale, saved.statistics, centered_gradient, product_gradient, norm_sums, count,
        CHANNELS=width, POSITIONS=POSITIONS, BLOCK=triton.next_power_of_2(width), num_warps=_warps(width),
    )  # fmt: skip
    del ungated, centered_gradient
    left, right = (x.flatten(0, 1) for x in saved.factors.split(width))
    upstream = product_gradient.flatten(0, 1)
    factors_gradient = torch.empty_like(saved.factors)
    left_gradient, right_gradient = (x.flatten(0, 1) for x in factors_gradient.split(width))
    scale = product_scale(gradient.dtype, normed.shape[1])
    if outgoing:  # product = left rightᵀ
        torch.baddbmm(left_gradient, upstream, right, beta=0, alpha=scale, out=left_gradient)
        torch.baddbmm(right_gradient, upstream.mT, left, beta=0, alpha=scale, out=right_gradient)
    else:  # product = rightᵀ left
        torch.baddbmm(left_gradient, right, upstream, beta=0, alpha=scale, out=left_gradient)
        torch.baddbmm(right_gradient, left, upstream.mT, beta=0, alpha=scale, out=right_gradient)
    gate_factors_backward[(blocks, triton.cdiv(2 * width, CHANNEL_BLOCK))](
        saved.projected, mask, factors_gradient, projected_gradient, partial_sums, stride + channels, count,
        CHANNELS=2 * width, STRIDE=stride, POSITIONS=POSITIONS, BLOCK=CHANNEL_BLOCK,
    )  # fmt: skip
    del factors_gradient, product_gradient
    normed_gradient = (projected_gradient @ projection.mT).view(normed.shape)
    projection_gradient = wide_product(normed.view(count, channels).mT, projected_gradient)
    return normed_gradient, projection_gradient, output_gradient, sum_rows(partial_sums), sum_rows(norm_sums)
