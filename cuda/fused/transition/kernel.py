"""The transition as one Triton kernel: LayerNorm, both products and what lies between; W stays on the chip.

A program takes a block of rows, normalises it once, and goes through the hidden layer a block at a time: each
block is computed, activated, rounded to the tensors' dtype and multiplied into the float32 accumulator of
the result. Weights come from the L2 cache, once for every block of rows.
On Hopper GPUs another kernel takes its place for the model's sizes, in hopper.py.
"""

import torch
import triton
import triton.language as tl

from cuda.fused.blocks import check_tensors, matrix_tiles, normalised_rows, row_offsets, rows_of, sigmoid
from cuda.fused.hopper import available
from cuda.fused.launch_table import choose_launch
from cuda.fused.transition.reference import SwigluTransitionWeights, TransitionWeights


@triton.jit
def _transition(
    x,
    norm_scale,
    norm_offset,
    gate,
    widen,
    widen_bias,
    narrow,
    narrow_bias,
    result,
    count,
    inner,
    outer_stride,
    inner_stride,
    channel_stride,
    result_outer_stride,
    result_inner_stride,
    result_channel_stride,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A gate makes it SwiGLU, otherwise it is ReLU with biases; ADD adds x to the result.

    gate and widen are descriptors of [BLOCK, HIDDEN] tiles, narrow of [HIDDEN, BLOCK]: tiles read through
    pointers cost registers that the accumulator needs. What lies outside the matrices reads as 0.
    """
    dtype = x.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    present = (rows < count)[:, None] & channels[None, :]
    starts = row_offsets(rows, inner, outer_stride, inner_stride)
    places = starts[:, None] + columns[None, :] * channel_stride
    normed = normalised_rows(x, places, present, norm_scale, norm_offset, CHANNELS, BLOCK).to(dtype)
    update = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, WIDTH, HIDDEN):
        hidden = first + tl.arange(0, HIDDEN)
        wide = tl.dot(normed, widen.load([0, first]), input_precision=PRECISION)  # [ROWS, HIDDEN]
        if gate is None:
            wide += tl.load(widen_bias + hidden, mask=hidden < WIDTH, other=0.0).to(tl.float32)[None, :]
            wide = tl.maximum(wide, 0.0)
        else:
            gates = tl.dot(normed, gate.load([0, first]), input_precision=PRECISION)
            wide *= gates * sigmoid(gates)
        update = tl.dot(wide.to(dtype), narrow.load([first, 0]), update, input_precision=PRECISION)
    if gate is None:
        update += tl.load(narrow_bias + columns, mask=channels, other=0.0).to(tl.float32)[None, :]
    if ADD:
        # read again: held over the loop the tile would cost registers
        update += tl.load(x + places, mask=present, other=0.0).to(tl.float32)
    starts = row_offsets(rows, inner, result_outer_stride, result_inner_stride)
    places = starts[:, None] + columns[None, :] * result_channel_stride
    tl.store(result + places, update.to(dtype), mask=present)


def transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """`cuda.fused.transition.transition` without its hidden layer in memory.

    Args:
        x: [..., C] of at most 256 channels, strided as it comes; see `cuda.fused.blocks.rows_of`.
        weights: the layer's parameters, of x's dtype.
        budget: taken for the reference's sake; there are no intermediates to bound.

    Returns:
        [..., C], the update, contiguous.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    return _launch(x, weights, in_place=False)


def add_transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """`cuda.fused.transition.add_transition`: no update in memory, and the sum is rounded once.

    Args and raises as `transition`.

    Returns:
        x.
    """
    return _launch(x, weights, in_place=True)


def swiglu_transition(
    x: torch.Tensor, weights: SwigluTransitionWeights, budget: int | None = None
) -> torch.Tensor:
    """`cuda.fused.transition.swiglu_transition` without its hidden layer in memory.

    Args, returns and raises as `transition`.
    """
    return _launch(x, weights, in_place=False)


def _launch(
    x: torch.Tensor, weights: TransitionWeights | SwigluTransitionWeights, *, in_place: bool
) -> torch.Tensor:
    check_tensors("transition", x, *weights)
    channels, width = weights.widen.shape
    if available(x) and isinstance(weights, TransitionWeights):
        # needs the Triton that it is for
        from cuda.fused.transition import hopper

        if hopper.suits(x, width):
            result = x if in_place else torch.empty_like(x)
            hopper.write_transition(x, weights, result, in_place)
            return result
    options = choose_launch("transition", x, channels)
    rows = rows_of(x)
    block = max(16, triton.next_power_of_2(channels))
    gate = widen_bias = narrow_bias = None
    if isinstance(weights, SwigluTransitionWeights):
        # the gate's tile takes the room of half a block
        options["HIDDEN"] //= 2
        gate = matrix_tiles(weights.gate, block, options["HIDDEN"])
    else:
        widen_bias, narrow_bias = weights.widen_bias.contiguous(), weights.narrow_bias.contiguous()
    result = x if in_place else x.new_empty(x.shape)
    result_strides = rows[2:] if in_place else (rows.inner * channels, channels, 1)
    if rows.count:
        _transition[(triton.cdiv(rows.count, options["ROWS"]),)](
            x,
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            gate,
            matrix_tiles(weights.widen, block, options["HIDDEN"]),
            widen_bias,
            matrix_tiles(weights.narrow, options["HIDDEN"], block),
            narrow_bias,
            result,
            *rows,
            *result_strides,
            CHANNELS=channels,
            WIDTH=width,
            ADD=in_place,
            BLOCK=block,
            **options,
        )
    return result
