"""Layer normalisation as one Triton kernel that reads and writes each element once."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch
from cuda.fused.rows import load_normalised, row_offsets, rows_of


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
    """Normalise the last axis; statistics are float32.

    Args:
        x: [..., C] of at most 1024 channels, with strides that `cuda.fused.rows.rows_of` supports.
        scale: [C].
        offset: [C].

    Returns:
        [..., C], contiguous, of x's dtype.

    Raises:
        ValueError: the kernel does not support these tensors.
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
