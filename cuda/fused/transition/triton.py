"""The transition as one Triton kernel that keeps the hidden layer on the chip.

A program normalises a block of rows once and loops over blocks of hidden channels: each block is computed,
activated, rounded to the tensors' dtype and multiplied into the float32 accumulator of the result. The
weights come from the L2 cache, once per block of rows.
"""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch, matrix_tiles, padded_channels
from cuda.fused.rows import load_normalised, row_offsets, rows_of, sigmoid
from cuda.fused.transition.reference import GATE_BLOCK, TransitionWeights

GATE = tl.constexpr(GATE_BLOCK)


@triton.jit
def _widened(
    normed, widen, bias, first, COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, PRECISION: tl.constexpr
):
    """Return some columns [ROWS, HIDDEN] of the widened rows."""
    column = first + tl.arange(0, HIDDEN)
    wide = tl.dot(normed, widen.load([0, first]), input_precision=PRECISION)
    return wide + tl.load(bias + column, mask=column < COLUMNS, other=0.0).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=["count", "inner"])
def _transition(
    x,
    norm_scale,
    norm_offset,
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
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the update of ROWS rows to the result; ADD adds x to it.

    widen is a descriptor of [BLOCK, HIDDEN] tiles and narrow one of [HIDDEN, BLOCK] tiles: loads through
    pointers would take registers that the accumulator needs. Elements outside the matrices read as 0.
    """
    dtype = x.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    mask = (rows < count)[:, None] & channels[None, :]
    starts = row_offsets(rows, inner, outer_stride, inner_stride)
    offsets = starts[:, None] + columns[None, :] * channel_stride
    normed = load_normalised(x, offsets, mask, norm_scale, norm_offset, CHANNELS, BLOCK).to(dtype)
    update = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, WIDTH, HIDDEN):
        column = first + first // GATE * GATE if GATED else first
        wide = _widened(normed, widen, widen_bias, column, WIDTH * (1 + GATED), HIDDEN, PRECISION)
        if GATED:
            factor = _widened(normed, widen, widen_bias, column + GATE, 2 * WIDTH, HIDDEN, PRECISION)
            wide = wide * sigmoid(wide) * factor
        else:
            wide = tl.maximum(wide, 0.0)
        update = tl.dot(wide.to(dtype), narrow.load([first, 0]), update, input_precision=PRECISION)
    update += tl.load(narrow_bias + columns, mask=channels, other=0.0).to(tl.float32)[None, :]
    if ADD:
        # loaded again, because keeping the tile during the loop would take registers
        update += tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    starts = row_offsets(rows, inner, result_outer_stride, result_inner_stride)
    offsets = starts[:, None] + columns[None, :] * result_channel_stride
    tl.store(result + offsets, update.to(dtype), mask=mask)


def transition(x: torch.Tensor, weights: TransitionWeights, *, add: bool = False) -> torch.Tensor:
    """Compute the update of every position; see `cuda.fused.transition.reference.transition`.

    Strides of x are those that `cuda.fused.rows.rows_of` supports, weights have its dtype, and the result is
    contiguous. With `add`, x is changed in place and returned; the sum is rounded once.
    """
    result = x if add else x.new_empty(x.shape)
    check_tensors("transition", x, *weights[2:])  # those of LayerNorm may be float32
    width, channels = weights.narrow.shape
    options = choose_launch("transition", x, channels)
    rows = rows_of(x)
    block = padded_channels(channels)
    result_strides = rows[2:] if add else (rows.inner * channels, channels, 1)
    if rows.count:
        _transition[(triton.cdiv(rows.count, options["ROWS"]),)](
            x,
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            matrix_tiles(weights.widen, block, options["HIDDEN"]),
            weights.widen_bias.contiguous(),
            matrix_tiles(weights.narrow, options["HIDDEN"], block),
            weights.narrow_bias.contiguous(),
            result,
            *rows,
            *result_strides,
            CHANNELS=channels,
            WIDTH=width,
            GATED=weights.is_gated,
            ADD=add,
            BLOCK=block,
            **options,
        )
    return result
