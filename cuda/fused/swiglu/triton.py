"""The gated product of a SwiGLU transition as one Triton kernel that rounds once."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors
from cuda.fused.rows import sigmoid

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def _swiglu(x, result, count, factor, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Write BLOCK elements of the result [count / WIDTH, WIDTH]."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    inside = start + tl.arange(0, BLOCK) < count
    # divided as 32-bit numbers, which is much faster
    index = (start % WIDTH).to(tl.int32) + tl.arange(0, BLOCK)
    source = x + start // WIDTH * (2 * WIDTH) + index // WIDTH * (2 * WIDTH) + index % WIDTH
    a = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(source + WIDTH, mask=inside, other=0.0).to(tl.float32)
    product = a * sigmoid(a) * factor * b
    tl.store(result + start + tl.arange(0, BLOCK), product.to(result.dtype.element_ty), mask=inside)


def swiglu(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Compute silu(a) · b · factor; see `cuda.fused.swiglu.swiglu`."""
    check_tensors("swiglu", x)
    x = x.contiguous()
    width = x.shape[-1] // 2
    result = x.new_empty(*x.shape[:-1], width)
    if result.numel():
        grid = (triton.cdiv(result.numel(), BLOCK),)
        _swiglu[grid](x, result, result.numel(), float(factor), WIDTH=width, BLOCK=BLOCK, num_warps=4)
    return result
