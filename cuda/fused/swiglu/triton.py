"""The gated product of a SwiGLU transition as one Triton kernel that rounds once."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors
from cuda.fused.rows import sigmoid

# elements of a tile, and most columns of it
TILE, COLUMNS = 2048, 512


@triton.jit
def _tile(rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the offsets of a tile in [rows, WIDTH] and in [rows, 2 WIDTH], and which elements exist."""
    blocks: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    row = (tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    wide = row.to(tl.int64) * WIDTH
    return wide + column, 2 * wide + column, (row < rows) & (column < WIDTH)


@triton.jit(do_not_specialize=["rows"])
def _swiglu(x, result, rows, factor, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write a tile of the result [rows, WIDTH]."""
    offsets, source, inside = _tile(rows, WIDTH, ROWS, COLUMNS)
    a = tl.load(x + source, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + source + WIDTH, mask=inside, other=0.0).to(tl.float32)
    product = a * sigmoid(a) * factor * b
    tl.store(result + offsets, product.to(result.dtype.element_ty), mask=inside)


def swiglu(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Compute silu(a) · b · factor; see `cuda.fused.swiglu.swiglu`."""
    check_tensors("swiglu", x)
    x = x.contiguous()
    result = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    if result.numel():
        grid, sizes = _launch(result)
        _swiglu[grid](x, result, result.numel() // sizes["WIDTH"], float(factor), **sizes, num_warps=4)
    return result


def _launch(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid and the sizes of tiles for x [..., W]."""
    width = x.shape[-1]
    columns = min(COLUMNS, triton.next_power_of_2(width))
    tile = TILE // columns
    grid = triton.cdiv(x.numel() // width, tile) * triton.cdiv(width, columns)
    return (grid,), {"WIDTH": width, "ROWS": tile, "COLUMNS": columns}


@triton.jit(do_not_specialize=["rows"])
def _swiglu_backward(
    gradient, x, result, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write a tile of the gradient of a, and one of b."""
    offsets, source, inside = _tile(rows, WIDTH, ROWS, COLUMNS)
    upstream = tl.load(gradient + offsets, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(x + source, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + source + WIDTH, mask=inside, other=0.0).to(tl.float32)
    gate = sigmoid(a)
    first = upstream * b * gate * (1 + a * (1 - gate))
    tl.store(result + source, first.to(result.dtype.element_ty), mask=inside)
    tl.store(result + source + WIDTH, (upstream * a * gate).to(result.dtype.element_ty), mask=inside)


def swiglu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x [..., 2 W], given that of silu(a) · b [..., W]."""
    gradient, result = gradient.contiguous(), torch.empty_like(x)
    if gradient.numel():
        grid, sizes = _launch(gradient)
        _swiglu_backward[grid](gradient, x, result, gradient.numel() // sizes["WIDTH"], **sizes, num_warps=4)
    return result
