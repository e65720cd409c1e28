"""Layer normalisation as one Triton kernel that reads and writes each element once."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch, program_count
from cuda.fused.row_sums import sum_rows
from cuda.fused.rows import EPSILON, load_normalised, row_offsets, rows_of

# elements of a tile of the backward pass, and programs on a multiprocessor
TILE, RESIDENT = 2048, 8


@triton.jit(do_not_specialize=["count", "inner"])
def _layer_norm(
    x,
    scale,
    offset,
    result,
    count,
    inner,
    outer_stride,
    inner_stride,
    channel_stride,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Normalise ROWS rows of a `Rows` into the contiguous result."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    mask = (rows < count)[:, None] & channels[None, :]
    starts = row_offsets(rows, inner, outer_stride, inner_stride)
    offsets = starts[:, None] + columns[None, :] * channel_stride
    normed = load_normalised(x, offsets, mask, scale, offset, CHANNELS, BLOCK)
    offsets = rows.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
    tl.store(result + offsets, normed.to(result.dtype.element_ty), mask=mask)


def layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Normalise the last axis; see `cuda.fused.layer_norm.layer_norm`. Statistics are float32.

    Strides are those that `cuda.fused.rows.rows_of` supports; the result is contiguous.
    """
    check_tensors("layer_norm", x, scale, offset)
    return normalise_rows(x, scale, offset)


def normalise_rows(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Normalise as `layer_norm`, with scale and offset of any dtype."""
    channels = x.shape[-1]
    options = choose_launch("layer_norm", x, channels)
    rows = rows_of(x)
    result = x.new_empty(x.shape)
    if rows.count:
        _layer_norm[(triton.cdiv(rows.count, options["ROWS"]),)](
            x,
            scale.contiguous(),
            offset.contiguous(),
            result,
            *rows,
            CHANNELS=channels,
            BLOCK=triton.next_power_of_2(channels),
            **options,
        )
    return result


@triton.jit(do_not_specialize=["count", "inner"])
def _layer_norm_backward(
    gradient, x, scale, x_gradient, sums, count, inner, outer_stride, inner_stride, channel_stride,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of every n-th block of ROWS rows, and the sums of those of scale and offset."""
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    scales = tl.load(scale + columns, mask=channels, other=0.0).to(tl.float32)[None, :]
    scale_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    offset_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        rows = block * ROWS + tl.arange(0, ROWS)
        mask = (rows < count)[:, None] & channels[None, :]
        starts = row_offsets(rows, inner, outer_stride, inner_stride)
        value = tl.load(x + starts[:, None] + columns[None, :] * channel_stride, mask=mask, other=0.0)
        value = value.to(tl.float32)
        offsets = rows.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
        upstream = tl.load(gradient + offsets, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(channels[None, :], value - (tl.sum(value, 1) / CHANNELS)[:, None], 0.0)
        factor = tl.rsqrt(tl.sum(centred * centred, 1) / CHANNELS + EPSILON)[:, None]
        normed = centred * factor
        scale_sum += upstream * normed
        offset_sum += upstream
        scaled = upstream * scales
        mean = (tl.sum(scaled, 1) / CHANNELS)[:, None]
        slope = (tl.sum(scaled * normed, 1) / CHANNELS)[:, None]
        result = factor * (scaled - mean - normed * slope)
        tl.store(x_gradient + offsets, result.to(x_gradient.dtype.element_ty), mask=mask)
    sums += tl.program_id(0) * 2 * CHANNELS + columns
    tl.store(sums, tl.sum(scale_sum, 0), mask=channels)
    tl.store(sums + CHANNELS, tl.sum(offset_sum, 0), mask=channels)


def layer_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `normalise_rows`' gradient of x [..., C], and those of scale and offset, float32 [2, C]."""
    channels = x.shape[-1]
    rows = rows_of(x)
    block = triton.next_power_of_2(channels)
    tile = max(1, TILE // block)
    programs = program_count(x, triton.cdiv(rows.count, tile), RESIDENT)
    x_gradient = x.new_empty(x.shape)
    sums = x.new_empty(programs, 2, channels, dtype=torch.float32)
    if rows.count:
        _layer_norm_backward[(programs,)](
            gradient.contiguous(), x, scale.contiguous(), x_gradient, sums, *rows,
            CHANNELS=channels, BLOCK=block, ROWS=tile, num_warps=4,
        )  # fmt: skip
    return x_gradient, sum_rows(sums)
