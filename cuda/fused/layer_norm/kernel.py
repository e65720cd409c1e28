"""Layer normalisation as one Triton kernel: each element is read once and written once."""

import torch
import triton
import triton.language as tl

from cuda.fused.blocks import check_tensors, normalised_rows, row_offsets, rows_of
from cuda.fused.launch_table import choose_launch


@triton.jit
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
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    present = (rows < count)[:, None] & channels[None, :]
    starts = row_offsets(rows, inner, outer_stride, inner_stride)
    places = starts[:, None] + columns[None, :] * channel_stride
    normed = normalised_rows(x, places, present, scale, offset, CHANNELS, BLOCK)
    places = rows.to(tl.int64)[:, None] * CHANNELS + columns[None, :]
    tl.store(result + places, normed.to(result.dtype.element_ty), mask=present)


def layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """`cuda.fused.layer_norm.layer_norm` with statistics in float32, in registers.

    Args:
        x: [..., C] of at most 1024 channels, strided as it comes; see `cuda.fused.blocks.rows_of`.
        scale: [C].
        offset: [C].

    Returns:
        [..., C], contiguous, of x's dtype.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    check_tensors("layer_norm", x, scale, offset)
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
