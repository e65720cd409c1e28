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
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    source = x + index // WIDTH * (2 * WIDTH) + index % WIDTH
    a = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(source + WIDTH, mask=inside, other=0.0).to(tl.float32)
    product = a * sigmoid(a) * factor * b
    tl.store(result + index, product.to(result.dtype.element_ty), mask=inside)


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


@triton.jit(do_not_specialize=["count"])
def _swiglu_backward(gradient, x, result, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Write the gradients of BLOCK elements of a, and of as many of b."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    offsets = index // WIDTH * (2 * WIDTH) + index % WIDTH
    upstream = tl.load(gradient + index, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + offsets + WIDTH, mask=inside, other=0.0).to(tl.float32)
    gate = sigmoid(a)
    first = upstream * b * gate * (1 + a * (1 - gate))
    tl.store(result + offsets, first.to(result.dtype.element_ty), mask=inside)
    tl.store(result + offsets + WIDTH, (upstream * a * gate).to(result.dtype.element_ty), mask=inside)


def swiglu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x [..., 2 W], given that of silu(a) · b [..., W]."""
    result = torch.empty_like(x)
    if gradient.numel():
        _swiglu_backward[(triton.cdiv(gradient.numel(), BLOCK),)](
            gradient.contiguous(), x, result, gradient.numel(), WIDTH=x.shape[-1] // 2, BLOCK=BLOCK,
            num_warps=4,
        )  # fmt: skip
    return result
