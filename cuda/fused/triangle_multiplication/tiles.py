"""What both kernels of the triangle multiplication do with positions and channels."""

import triton
import triton.language as tl

from cuda.fused.layer_norm.reference import EPSILON as LAYER_NORM_EPSILON

EPSILON = tl.constexpr(LAYER_NORM_EPSILON)


@triton.jit
def places_of(start, count, padded, length, strides, POSITIONS: tl.constexpr, ROWS: tl.constexpr):
    """Offsets in [B, N, N] of POSITIONS flat ones in [B, padded, padded] from a start on, and which exist.

    Args:
        start, count: the first, a scalar, and how many there are in all.
        strides: of [B, N, N].
        ROWS: how often so many positions may come to the next row. To divide once a program and then compare
            is a fraction of the cost of dividing for each position.
    """
    batch_stride, row_stride, column_stride = strides
    local = tl.arange(0, POSITIONS)
    first = start // padded
    column = start % padded + local
    batch = tl.zeros_like(column) + first // padded
    row = tl.zeros_like(column) + first % padded
    for _ in tl.static_range(ROWS):
        over = column >= padded
        column = tl.where(over, column - padded, column)
        row = tl.where(over, row + 1, row)
    over = row >= padded
    row = tl.where(over, row - padded, row)
    batch = tl.where(over, batch + 1, batch)
    offsets = batch.to(tl.int64) * batch_stride + row.to(tl.int64) * row_stride
    real = (row < length) & (column < length) & (start + local < count)
    return offsets + column.to(tl.int64) * column_stride, real


@triton.jit
def channels_of(start, first, CHANNELS: tl.constexpr, CHUNK: tl.constexpr):
    """A chunk of a vector of channels; 0 past the last."""
    channel = first + tl.arange(0, CHUNK)
    return tl.load(start + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)


@triton.jit
def tile_of(rows, real, first, CHANNELS: tl.constexpr, CHUNK: tl.constexpr):
    """A chunk of channels of some positions, float32 [positions, CHUNK]; 0 past the last."""
    channel = first + tl.arange(0, CHUNK)
    present = real[:, None] & (channel < CHANNELS)[None, :]
    return tl.load(rows[:, None] + channel[None, :], mask=present, other=0.0).to(tl.float32)


@triton.jit
def normed(
    rows, real, norm_scale, norm_offset, DTYPE: tl.constexpr, CHANNELS: tl.constexpr, CHUNK: tl.constexpr
):
    """LN of some positions, as a tuple of [positions, CHUNK] that holds all channels."""
    raw = ()
    total = 0.0
    for first in tl.static_range(0, CHANNELS, CHUNK):
        part = tile_of(rows, real, first, CHANNELS, CHUNK)
        total += tl.sum(part, 1)
        raw += (part,)
    mean = total / CHANNELS
    squares = 0.0
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        present = (k * CHUNK + tl.arange(0, CHUNK) < CHANNELS)[None, :]
        centred = tl.where(present, raw[k] - mean[:, None], 0.0)
        squares += tl.sum(centred * centred, 1)
    scale = tl.rsqrt(squares / CHANNELS + EPSILON)
    parts = ()
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        part = (raw[k] - mean[:, None]) * scale[:, None]
        part *= channels_of(norm_scale, k * CHUNK, CHANNELS, CHUNK)[None, :]
        parts += ((part + channels_of(norm_offset, k * CHUNK, CHANNELS, CHUNK)[None, :]).to(DTYPE),)
    return parts


@triton.jit
def projected(parts, weights, bias, column, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Columns of LN(x) W + b, float32 [positions, COLUMNS]; W is a descriptor of [CHUNK, COLUMNS] tiles."""
    out = 0.0
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        out += tl.dot(parts[k], weights.load([k * CHUNK, column]), input_precision=PRECISION)
    if bias is not None:
        out += channels_of(bias, column, WIDTH, COLUMNS)[None, :]
    return out
