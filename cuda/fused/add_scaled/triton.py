"""The product with factors that one axis shares, and a sum with it, as one Triton kernel."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors

# elements of a tile
TILE = 2048


@triton.jit
def _scale(
    result, result_row, result_column, x, update, update_row, update_column, factors, factor_row,
    factor_column, columns, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write some columns of a row of x + update · factors, or without x of the product."""
    row = tl.program_id(1).to(tl.int64)
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[:, None]
    channel = tl.arange(0, BLOCK)[None, :]
    inside = (column < columns) & (channel < CHANNELS)
    change = tl.load(update + row * update_row + column * update_column + channel, mask=inside, other=0.0)
    factor = tl.load(factors + row * factor_row + column * factor_column + channel, mask=inside, other=0.0)
    value = change.to(tl.float32) * factor.to(tl.float32)
    if x is not None:
        value += tl.load(x + (row * columns + column) * CHANNELS + channel, mask=inside, other=0.0)
    target = result + row * result_row + column * result_column + channel
    tl.store(target, value.to(result.dtype.element_ty), mask=inside)


def scale(
    result: torch.Tensor, x: torch.Tensor | None, update: torch.Tensor, factors: torch.Tensor, axis: int
) -> None:
    """Write x + update · factors, or the product alone, to result [1, R, C, D]; see `add_scaled`."""
    check_tensors("add_scaled", update, factors, result)
    if update.stride(3) != 1:
        update = update.contiguous()
    factors = factors.contiguous()
    _, rows, columns, channels = result.shape
    block = triton.next_power_of_2(channels)
    tile = max(1, TILE // block)
    strides = (0, channels) if axis == 1 else (channels, 0)
    _scale[(triton.cdiv(columns, tile), rows)](
        result, *result.stride()[1:3], x, update, *update.stride()[1:3], factors, *strides, columns,
        CHANNELS=channels, BLOCK=block, COLUMNS=tile, num_warps=4,
    )  # fmt: skip
