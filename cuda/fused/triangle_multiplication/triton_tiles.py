"""Device functions of the triangle multiplication's Triton kernels, which load, project and store tiles.

They work on flat positions of rows [n, P], where P is the length N padded.
"""

import triton
import triton.language as tl

from cuda.fused.rows import EPSILON


@triton.jit
def position_offsets(start, count, padded, length, strides, POSITIONS: tl.constexpr, ROWS: tl.constexpr):
    """Return the offsets in [n, N] of POSITIONS flat positions of [n, P], and which of them exist.

    Args:
        start: first flat position, a scalar.
        count: number of flat positions.
        padded: P.
        length: N; rows from this one on do not exist.
        strides: strides of a tensor [n, N].
        POSITIONS: number of offsets.
        ROWS: maximum number of row ends among POSITIONS positions. Dividing once per program and comparing
            this often is a fraction of the cost of dividing for each position.
    """
    row_stride, column_stride = strides
    local = tl.arange(0, POSITIONS)
    column = start % padded + local
    row = tl.zeros_like(column) + start // padded
    for _ in tl.static_range(ROWS):
        over = column >= padded
        column = tl.where(over, column - padded, column)
        row = tl.where(over, row + 1, row)
    real = (row < length) & (column < length) & (start + local < count)
    return row.to(tl.int64) * row_stride + column.to(tl.int64) * column_stride, real


@triton.jit
def load_channels(base, first, CHANNELS: tl.constexpr, CHUNK: tl.constexpr):
    """Load a chunk of a vector of channels as float32; 0 past the last channel."""
    channel = first + tl.arange(0, CHUNK)
    return tl.load(base + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)


@triton.jit
def load_chunk(rows, real, first, CHANNELS: tl.constexpr, CHUNK: tl.constexpr):
    """Load a chunk of channels of real positions as float32 [positions, CHUNK]; 0 past the last channel."""
    channel = first + tl.arange(0, CHUNK)
    mask = real[:, None] & (channel < CHANNELS)[None, :]
    return tl.load(rows[:, None] + channel[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_chunk(rows, real, first, values, CHANNELS: tl.constexpr, CHUNK: tl.constexpr):
    """Store a chunk of channels [positions, CHUNK] of real positions."""
    channel = first + tl.arange(0, CHUNK)
    mask = real[:, None] & (channel < CHANNELS)[None, :]
    tl.store(rows[:, None] + channel[None, :], values.to(rows.dtype.element_ty), mask=mask)


@triton.jit
def load_normalised_chunks(
    rows, real, norm_scale, norm_offset, DTYPE: tl.constexpr, CHANNELS: tl.constexpr, CHUNK: tl.constexpr
):
    """Load positions and normalise them; return a tuple of chunks [positions, CHUNK] of all channels."""
    raw = ()
    total = 0.0
    for first in tl.static_range(0, CHANNELS, CHUNK):
        chunk = load_chunk(rows, real, first, CHANNELS, CHUNK)
        total += tl.sum(chunk, 1)
        raw += (chunk,)
    mean = total / CHANNELS
    squares = 0.0
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        channels = (k * CHUNK + tl.arange(0, CHUNK) < CHANNELS)[None, :]
        centred = tl.where(channels, raw[k] - mean[:, None], 0.0)
        squares += tl.sum(centred * centred, 1)
    scale = tl.rsqrt(squares / CHANNELS + EPSILON)
    chunks = ()
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        chunk = (raw[k] - mean[:, None]) * scale[:, None]
        chunk *= load_channels(norm_scale, k * CHUNK, CHANNELS, CHUNK)[None, :]
        chunks += ((chunk + load_channels(norm_offset, k * CHUNK, CHANNELS, CHUNK)[None, :]).to(DTYPE),)
    return chunks


@triton.jit
def project_columns(
    chunks, weights, bias, column, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return columns of LN(x) W + b as float32 [positions, COLUMNS].

    W is a descriptor of [CHUNK, COLUMNS] tiles.
    """
    out = 0.0
    for k in tl.static_range(0, (CHANNELS + CHUNK - 1) // CHUNK):
        out += tl.dot(chunks[k], weights.load([k * CHUNK, column]), input_precision=PRECISION)
    if bias is not None:
        out += load_channels(bias, column, WIDTH, COLUMNS)[None, :]
    return out
