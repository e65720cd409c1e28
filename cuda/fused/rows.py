"""Strided tensors seen as rows of channels, and device functions that load and normalise rows.

Imports Triton, so only modules with kernels import this one.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from cuda.fused import LAYER_NORM_EPSILON
from cuda.fused.launch import INTERPRETED

IN_INTERPRETER = tl.constexpr(INTERPRETED)
EPSILON = tl.constexpr(LAYER_NORM_EPSILON)


class Rows(NamedTuple):
    """A tensor [..., C] seen as rows of channels, without a copy. Strides are in elements.

    Args:
        count: number of rows, outer · inner.
        inner: number of rows within one step of the outer stride.
        outer_stride: between blocks of `inner` rows.
        inner_stride: between rows of one block.
        channel_stride: between channels.
    """

    count: int
    inner: int
    outer_stride: int
    inner_stride: int
    channel_stride: int


def rows_of(x: torch.Tensor) -> Rows:
    """Return the rows of a tensor [..., C] whose leading axes have at most two independent strides.

    Raises:
        ValueError: the leading axes have more than two independent strides.
    """
    axes: list[list[int]] = []  # [size, stride] of the leading axes, merged where they are contiguous
    for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = [axes[-1][0] * size, stride]
        else:
            axes.append([size, stride])
    if len(axes) > 2:
        raise ValueError(
            f"rows of shape {tuple(x.shape)} and strides {x.stride()} need more than two strides"
        )
    (outer, outer_stride), (inner, inner_stride) = [[1, 0]] * (2 - len(axes)) + axes
    return Rows(outer * inner, inner, outer_stride, inner_stride, x.stride(-1))


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(−x)) of float32.

    Takes a third of the instructions of `tl.sigmoid`. Exponentials and quotients below float32's normal range
    are flushed to 0; each step is accurate to two units in the last place.
    """
    if IN_INTERPRETER:
        return tl.sigmoid(x)
    return tl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            mul.f32 t, $1, 0fBFB8AA3B;  // -log2 e
            ex2.approx.ftz.f32 t, t;
            add.f32 t, t, 0f3F800000;  // 1
            rcp.approx.ftz.f32 $0, t;
        }""",
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def row_offsets(rows, inner, outer_stride, inner_stride):
    """Return the offsets of rows [R] of a `Rows`, in 64 bits: pair representations exceed 2³¹ elements."""
    outer = rows // inner
    return outer.to(tl.int64) * outer_stride + (rows - outer * inner).to(tl.int64) * inner_stride


@triton.jit
def load_normalised(x, offsets, mask, norm_scale, norm_offset, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Load a tile of rows at offsets [R, BLOCK] under a mask and normalise it: float32 [R, BLOCK]."""
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    return normalise(
        tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32),
        channels[None, :],
        tl.load(norm_scale + columns, mask=channels, other=0.0).to(tl.float32),
        tl.load(norm_offset + columns, mask=channels, other=0.0).to(tl.float32),
        CHANNELS,
        EPSILON,
    )


@triton.jit
def normalise(x, mask, scale, offset, CHANNELS: tl.constexpr, epsilon):
    """Return LayerNorm of a tile: float32 [R, BLOCK], scale and offset [BLOCK], to float32 [R, BLOCK].

    The variance is that of the centred values, since E[x²] − E[x]² cancels. The mask [1, BLOCK] marks the
    columns that are channels; other columns must be 0 in x, scale and offset, and are 0 in the result.
    """
    mean = tl.sum(x, axis=1) / CHANNELS
    centred = tl.where(mask, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / CHANNELS
    return centred * tl.rsqrt(variance + epsilon)[:, None] * scale[None, :] + offset[None, :]
