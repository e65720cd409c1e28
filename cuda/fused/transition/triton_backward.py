"""The backward pass of the transition in Triton, which recomputes the hidden layer.

A program normalises a block of rows and loops over blocks of hidden channels as the forward pass does. It
writes the hidden layer and its gradient, from which the GPU's own library computes the gradients of the
matrices, and sums up the gradient of the normalised rows, which passes through LayerNorm at the end.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch, padded_channels
from cuda.fused.matrix_products import wide_product
from cuda.fused.rows import EPSILON
from cuda.fused.transition.reference import TransitionWeights


@triton.jit
def _load_rows(x, offsets, mask):
    return tl.load(x + offsets, mask=mask, other=0.0)


@triton.jit
def _load_channels(x, channel, CHANNELS: tl.constexpr):
    return tl.load(x + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)


@triton.jit
def transition_gradients(
    x, gradient, norm_scale, norm_offset, widen, widen_bias, narrow, normed, hidden, hidden_gradient,
    x_gradient, partial_sums, count, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, HIDDEN: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write LN(x), the hidden layer, the gradient of the hidden layer before relu, and that of x.

    A program computes ROWS rows of [P, CHANNELS] and [P, WIDTH]. It also writes sums over its rows to
    partial_sums [programs, 3 * CHANNELS + WIDTH]: of the gradients of scale, offset, narrow_bias and
    widen_bias.
    """
    dtype = x.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (rows < count)[:, None] & (column < CHANNELS)[None, :]
    wide_rows = rows.to(tl.int64)[:, None]
    offsets = wide_rows * CHANNELS + column[None, :]
    scale = _load_channels(norm_scale, column, CHANNELS)
    values = _load_rows(x, offsets, mask).to(tl.float32)
    mean = tl.sum(values, 1) / CHANNELS
    centred = tl.where(mask, values - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / CHANNELS + EPSILON)
    shift = _load_channels(norm_offset, column, CHANNELS)
    rounded = (centred * inverse[:, None] * scale[None, :] + shift[None, :]).to(dtype)
    tl.store(normed + offsets, rounded, mask=mask)
    upstream = _load_rows(gradient, offsets, mask)
    partial_sums += tl.program_id(0) * (3 * CHANNELS + WIDTH)
    sums = partial_sums + column
    tl.store(sums + 2 * CHANNELS, tl.sum(upstream.to(tl.float32), 0), mask=column < CHANNELS)
    normed_gradient = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=STAGES):
        channel = first + tl.arange(0, HIDDEN)
        inside = channel < WIDTH
        matrix_mask = (column < CHANNELS)[:, None] & inside[None, :]
        first_matrix = tl.load(
            widen + column[:, None] * WIDTH + channel[None, :], mask=matrix_mask, other=0.0
        )  # [BLOCK, HIDDEN]
        second_matrix = tl.load(
            narrow + channel[:, None] * CHANNELS + column[None, :],
            mask=inside[:, None] & (column < CHANNELS)[None, :],
            other=0.0,
        )  # [HIDDEN, BLOCK]
        wide = tl.dot(rounded, first_matrix, input_precision=PRECISION)
        wide += _load_channels(widen_bias, channel, WIDTH)[None, :]
        wide_gradient = tl.dot(upstream, second_matrix.T, input_precision=PRECISION)
        wide_gradient = tl.where((wide > 0.0) & (rows < count)[:, None], wide_gradient, 0.0)
        hidden_offsets = wide_rows * WIDTH + channel[None, :]
        stored = (rows < count)[:, None] & inside[None, :]
        tl.store(hidden + hidden_offsets, tl.maximum(wide, 0.0).to(dtype), mask=stored)
        rounded_gradient = wide_gradient.to(dtype)
        tl.store(hidden_gradient + hidden_offsets, rounded_gradient, mask=stored)
        tl.store(partial_sums + 3 * CHANNELS + channel, tl.sum(wide_gradient, 0), mask=inside)
        normed_gradient = tl.dot(rounded_gradient, first_matrix.T, normed_gradient, input_precision=PRECISION)
    # loaded again, because keeping the tile during the loop would take registers
    standard = _load_rows(x, offsets, mask).to(tl.float32) - mean[:, None]
    standard = tl.where(mask, standard * inverse[:, None], 0.0)
    tl.store(sums, tl.sum(normed_gradient * standard, 0), mask=column < CHANNELS)
    tl.store(sums + CHANNELS, tl.sum(normed_gradient, 0), mask=column < CHANNELS)
    normed_gradient *= scale[None, :]
    average = tl.sum(normed_gradient, 1) / CHANNELS
    slope = tl.sum(normed_gradient * standard, 1) / CHANNELS
    result = (normed_gradient - average[:, None] - standard * slope[:, None]) * inverse[:, None]
    tl.store(x_gradient + offsets, result.to(dtype), mask=mask)


class TransitionGradients(NamedTuple):
    """Gradients of the input [P, C] and of the weights, by their names; those of weights at least float32."""

    x: torch.Tensor
    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    widen: torch.Tensor
    widen_bias: torch.Tensor
    narrow: torch.Tensor
    narrow_bias: torch.Tensor


def transition_backward(
    gradient: torch.Tensor, x: torch.Tensor, weights: TransitionWeights
) -> TransitionGradients:
    """Compute the gradients of `cuda.fused.transition.transition`.

    Args:
        gradient: [P, C], of the update, contiguous.
        x: [P, C], contiguous.
        weights: the layer's parameters, contiguous, of x's dtype; those of LayerNorm may be float32.

    Raises:
        ValueError: the kernel does not support these tensors.
    """
    check_tensors("transition", x, gradient, *weights[2:])
    count, channels = x.shape
    width = weights.widen.shape[1]
    options = choose_launch("transition", x, channels, "backward")
    programs = triton.cdiv(count, options["ROWS"])
    hidden, hidden_gradient = x.new_empty(count, width), x.new_empty(count, width)
    normed, x_gradient = torch.empty_like(x), torch.empty_like(x)
    partial_sums = x.new_empty(programs, 3 * channels + width, dtype=torch.float32)
    if count:
        transition_gradients[(programs,)](
            x, gradient, weights.norm_scale, weights.norm_offset, weights.widen, weights.widen_bias,
            weights.narrow, normed, hidden, hidden_gradient, x_gradient, partial_sums, count,
            CHANNELS=channels, WIDTH=width, BLOCK=padded_channels(channels), **options,
        )  # fmt: skip
    sums = partial_sums.sum(0)
    norm_scale, norm_offset, narrow_bias, widen_bias = sums.split([channels, channels, channels, width])
    return TransitionGradients(
        x=x_gradient,
        norm_scale=norm_scale,
        norm_offset=norm_offset,
        widen=wide_product(normed.mT, hidden_gradient),
        widen_bias=widen_bias,
        narrow=wide_product(hidden.mT, gradient),
        narrow_bias=narrow_bias,
    )
