"""The gated product of a SwiGLU transition with gradients, for training."""

from typing import Any

import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.swiglu.reference import swiglu as swiglu_reference


def swiglu(x: torch.Tensor, *, fused: bool) -> torch.Tensor:
    """Compute silu(a) · b from a and b side by side, x [..., 2 W]; `fused` runs the Triton kernels."""
    result: torch.Tensor = _SwiGLU.apply(x.contiguous()) if fused else swiglu_reference(x, 1.0)
    return result


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        result: torch.Tensor = implementation_module("swiglu", "triton").swiglu(x, 1.0)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        result: torch.Tensor = implementation_module("swiglu", "triton").swiglu_backward(gradient, x)
        return result
