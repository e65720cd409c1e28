"""Layer normalisation with gradients, for training: of the activations it keeps only its input."""

from typing import Any

import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.layer_norm.reference import wide_layer_norm


def layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, *, fused: bool) -> torch.Tensor:
    """Normalise the last axis of x [..., C] in float32; return x's dtype.

    Scale and offset [C] have any dtype. `fused` runs the Triton kernels, which take at most 1024 channels,
    unless torch.compile makes its own.
    """
    if fused and not torch.compiler.is_compiling():
        result: torch.Tensor = _LayerNorm.apply(x, scale, offset)
        return result
    return wide_layer_norm(x, scale, offset)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, scale)
        ctx.offset_dtype = offset.dtype
        result: torch.Tensor = _kernels().normalise_rows(x, scale, offset)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, scale = ctx.saved_tensors
        x_gradient, sums = _kernels().layer_norm_backward(gradient, x, scale)
        return x_gradient, sums[0].to(scale.dtype), sums[1].to(ctx.offset_dtype)


def _kernels() -> Any:
    return implementation_module("layer_norm", "triton")
