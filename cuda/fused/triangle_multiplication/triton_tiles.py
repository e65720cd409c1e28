"""Device functions of the triangle multiplication's Triton kernels, which load, project and store tiles.

They work on flat positions of batches [B, P, P], where P is the length N padded.
"""

import triton
import triton.language as tl

from cuda.fused.rows import EPSILON, normalise, sigmoid


@triton.jit
def position_offsets(start, count, padded, length, strides, POSITIONS: tl.constexpr, ROWS: tl.constexpr):
    """Return the offsets in [B, N, N] of POSITIONS flat positions of [B, P, P], and which of them exist.

    Args:
        start: first flat position, a scalar.
        count: number of flat positions.
        padded: P.
        length: N.
        strides: strides of a tensor [B, N, N].
        POSITIONS: number of offsets.
        ROWS: maximum number of row ends among POSITIONS positions. Dividing once per program and comparing
            this often is a fraction of the cost of dividing for each position.
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


@triton.jit
def load_operand_chunks(
    x, x_strides, mask, mask_strides, norm_scale, norm_offset, start, positions, padded, length,
    DTYPE: tl.constexpr, CHANNELS: tl.constexpr, POSITIONS: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Load and normalise POSITIONS flat positions of x; return their chunks of channels and their mask."""
    offsets, real = position_offsets(start, positions, padded, length, x_strides, POSITIONS, ROWS)
    rows = x + offsets
    keep = real.to(tl.float32)
    if mask is not None:
        mask_offsets, _ = position_offsets(start, positions, padded, length, mask_strides, POSITIONS, ROWS)
        keep = tl.load(mask + mask_offsets, mask=real, other=0.0).to(tl.float32)
    return load_normalised_chunks(rows, real, norm_scale, norm_offset, DTYPE, CHANNELS, CHUNK), keep


@triton.jit
def store_factors(
    chunks, keep, gated, gated_bias, out, plane, stored, DTYPE: tl.constexpr, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, POSITIONS: tl.constexpr, INNER: tl.constexpr, CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Store (LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ keep of both factors, INNER channels at a time."""
    for first in range(0, 2 * WIDTH, INNER):
        both = project_columns(
            chunks, gated, gated_bias, 2 * first, CHANNELS, 4 * WIDTH, 2 * INNER, CHUNK, PRECISION
        )
        values, gates = tl.split(both.reshape(POSITIONS, INNER, 2))
        values *= sigmoid(gates) * keep[:, None]
        channel = first + tl.arange(0, INNER)
        offsets = channel.to(tl.int64)[None, :] * plane
        tl.store(out + offsets, values.to(DTYPE), mask=stored & (channel < 2 * WIDTH)[None, :])


@triton.jit
def load_transposed(
    base, plane, start, positions, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, POSITIONS: tl.constexpr
):  # fmt: skip
    """Load POSITIONS flat positions of [M, B, P, P] as float32 [positions, M]; `plane` is B · P · P."""
    flat = start + tl.arange(0, POSITIONS)
    inner = tl.arange(0, BLOCK_WIDTH)
    mask = (inner < WIDTH)[:, None] & (flat < positions)[None, :]
    offsets = inner.to(tl.int64)[:, None] * plane + flat[None, :]
    return tl.trans(tl.load(base + offsets, mask=mask, other=0.0)).to(tl.float32)


@triton.jit
def load_product(
    base, plane, start, positions, epsilon, center_scale, center_offset, WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Load flat positions of the product and normalise them over its channels: float32 [positions, M]."""
    return normalise(
        load_transposed(base, plane, start, positions, WIDTH, BLOCK_WIDTH, POSITIONS),
        (tl.arange(0, BLOCK_WIDTH) < WIDTH)[None, :],
        load_channels(center_scale, 0, WIDTH, BLOCK_WIDTH),
        load_channels(center_offset, 0, WIDTH, BLOCK_WIDTH),
        WIDTH,
        epsilon,
    )
