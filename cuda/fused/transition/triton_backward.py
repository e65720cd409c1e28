"""The backward pass of the transition in Triton, which recomputes the hidden layer.

A program normalises a block of rows and loops over blocks of hidden channels as the forward pass does. It
writes the hidden layer and its gradient, from which the GPU's own library computes the gradients of the
matrices, and sums up the gradient of the normalised rows, which passes through LayerNorm at the end.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch, matrix_tiles, padded_channels
from cuda.fused.matrix_products import wide_product
from cuda.fused.row_sums import sum_rows
from cuda.fused.rows import EPSILON
from cuda.fused.transition.reference import TransitionWeights


@triton.jit
def _load_channels(x, channel, CHANNELS: tl.constexpr):
    return tl.load(x + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)


@triton.jit
def transition_gradients(
    x, gradient, norm_scale, norm_offset, widen, widen_bias, narrow, normed, hidden, hidden_gradient,
    x_gradient, partial_sums, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write LN(x), the hidden layer, the gradient of the hidden layer before relu, and that of x.

    A program computes ROWS rows of [P, CHANNELS] and [P, WIDTH]. It also writes sums over its rows to
    partial_sums [programs, 3 * CHANNELS + WIDTH]: of the gradients of scale, offset, narrow_bias and
    widen_bias.

    Descriptors: rows of CHANNELS in tiles [ROWS, BLOCK], of WIDTH in tiles [ROWS, HIDDEN], widen in tiles
    [BLOCK, HIDDEN] and narrow in tiles [HIDDEN, BLOCK]. Pointers would take registers that the accumulators
    need. Elements outside the tensors read as 0 and are not written.
    """
    dtype = normed.dtype
    row = tl.program_id(0) * ROWS
    column = tl.arange(0, BLOCK)
    inside = column < CHANNELS
    scale = _load_channels(norm_scale, column, CHANNELS)
    values = x.load([row, 0]).to(tl.float32)
    mean = tl.sum(values, 1) / CHANNELS
    centred = tl.where(inside[None, :], values - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / CHANNELS + EPSILON)
    shift = _load_channels(norm_offset, column, CHANNELS)
    rounded = (centred * inverse[:, None] * scale[None, :] + shift[None, :]).to(dtype)
    normed.store([row, 0], rounded)
    upstream = gradient.load([row, 0])
    partial_sums += tl.program_id(0) * (3 * CHANNELS + WIDTH)
    sums = partial_sums + column
    tl.store(sums + 2 * CHANNELS, tl.sum(upstream.to(tl.float32), 0), mask=inside)
    normed_gradient = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=STAGES):
        channel = first + tl.arange(0, HIDDEN)
        first_matrix = widen.load([0, first])  # [BLOCK, HIDDEN]
        second_matrix = narrow.load([first, 0])  # [HIDDEN, BLOCK]
        wide = tl.dot(rounded, first_matrix, input_precision=PRECISION)
        wide += _load_channels(widen_bias, channel, WIDTH)[None, :]
        activated = tl.maximum(wide, 0.0).to(dtype)
        hidden.store([row, first], activated)
        # gradients of rows beyond the last are 0, as those of the update read as 0
        wide_gradient = tl.dot(upstream, second_matrix.T, input_precision=PRECISION)
        wide_gradient = tl.where(activated > 0.0, wide_gradient, 0.0)
        tl.store(partial_sums + 3 * CHANNELS + channel, tl.sum(wide_gradient, 0), mask=channel < WIDTH)
        rounded_gradient = wide_gradient.to(dtype)
        hidden_gradient.store([row, first], rounded_gradient)
        normed_gradient = tl.dot(rounded_gradient, first_matrix.T, normed_gradient, input_precision=PRECISION)
    # loaded again, because keeping the tile during the loop would take registers
    standard = x.load([row, 0]).to(tl.float32) - mean[:, None]
    standard = tl.where(inside[None, :], standard * inverse[:, None], 0.0)
    tl.store(sums, tl.sum(normed_gradient * standard, 0), mask=inside)
    tl.store(sums + CHANNELS, tl.sum(normed_gradient, 0), mask=inside)
    normed_gradient *= scale[None, :]
    average = tl.sum(normed_gradient, 1) / CHANNELS
    slope = tl.sum(normed_gradient * standard, 1) / CHANNELS
    result = (normed_gradient - average[:, None] - standard * slope[:, None]) * inverse[:, None]
    x_gradient.store([row, 0], result.to(dtype))


class TransitionGradients(NamedTuple):
    """Gradients of the input and of the weights.

    Args:
        x: [P, C], of the input's dtype.
        widen: [C, W], float32.
        narrow: [W, C], float32.
        vectors: [3*C + W] float32: those of norm_scale, norm_offset, narrow_bias and widen_bias.
    """

    x: torch.Tensor
    widen: torch.Tensor
    narrow: torch.Tensor
    vectors: torch.Tensor


class HiddenGradients(NamedTuple):
    """Tensors that a kernel of the backward pass writes.

    Args:
        normed: [P, C], the rows that the first projection takes: LN(x), or without scale and offset if these
            are folded into the projection.
        hidden: [P, W].
        hidden_gradient: [P, W], before relu.
        x_gradient: [P, C].
        partial_sums: [programs, 3*C + W] float32, of the gradients of scale, offset, narrow_bias and
            widen_bias; [programs, C + W] without the first two if these are folded.
    """

    normed: torch.Tensor
    hidden: torch.Tensor
    hidden_gradient: torch.Tensor
    x_gradient: torch.Tensor
    partial_sums: torch.Tensor

    @staticmethod
    def allocate(x: torch.Tensor, width: int, *sums: int) -> "HiddenGradients":
        """Allocate the tensors for rows x [P, C], W hidden channels, and partial sums of a shape."""
        count = len(x)
        return HiddenGradients(
            normed=torch.empty_like(x),
            hidden=x.new_empty(count, width),
            hidden_gradient=x.new_empty(count, width),
            x_gradient=torch.empty_like(x),
            partial_sums=x.new_empty(sums, dtype=torch.float32),
        )


def transition_backward(
    gradient: torch.Tensor, x: torch.Tensor, weights: TransitionWeights
) -> TransitionGradients:
    """Compute the gradients of `cuda.fused.transition.reference.transition`, given that of the update.

    Gradient and x [P, C] and the parameters are contiguous, and of x's dtype; those of LayerNorm may be
    float32.

    Raises:
        ValueError: the kernel does not support these tensors.
    """
    check_tensors("transition", x, gradient, *weights[2:])
    return weight_gradients(gradient, hidden_gradients(gradient, x, weights))


def hidden_gradients(gradient: torch.Tensor, x: torch.Tensor, weights: TransitionWeights) -> HiddenGradients:
    """Run the kernel; same arguments and errors as `transition_backward`."""
    count, channels = x.shape
    width = weights.widen.shape[1]
    options = choose_launch("transition", x, channels, "backward")
    block, rows, columns = padded_channels(channels), options["ROWS"], options["HIDDEN"]
    programs = triton.cdiv(count, rows)
    result = HiddenGradients.allocate(x, width, programs, 3 * channels + width)
    if count:
        transition_gradients[(programs,)](
            matrix_tiles(x, rows, block),
            matrix_tiles(gradient, rows, block),
            weights.norm_scale,
            weights.norm_offset,
            matrix_tiles(weights.widen, block, columns),
            weights.widen_bias,
            matrix_tiles(weights.narrow, columns, block),
            matrix_tiles(result.normed, rows, block),
            matrix_tiles(result.hidden, rows, columns),
            matrix_tiles(result.hidden_gradient, rows, columns),
            matrix_tiles(result.x_gradient, rows, block),
            result.partial_sums,
            CHANNELS=channels,
            WIDTH=width,
            BLOCK=block,
            **options,
        )
    return result


def weight_gradients(
    gradient: torch.Tensor, computed: HiddenGradients, vectors: torch.Tensor | None = None
) -> TransitionGradients:
    """Return all gradients.

    Args:
        gradient: [P, C], of the update.
        computed: tensors that the kernel has written.
        vectors: where the sums of the partial sums are written; by default a new tensor.
    """
    return TransitionGradients(
        x=computed.x_gradient,
        widen=wide_product(computed.normed.mT, computed.hidden_gradient),
        narrow=wide_product(computed.hidden.mT, gradient),
        vectors=sum_rows(computed.partial_sums, vectors),
    )
