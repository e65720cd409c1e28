"""A residual connection whose update has factors that one axis shares, such as those of dropout."""

from typing import Any

import torch

from cuda.fused.dispatch import implementation_module

__all__ = ["add_scaled"]


def add_scaled(
    x: torch.Tensor, update: torch.Tensor, factors: torch.Tensor, axis: int, *, fused: bool
) -> torch.Tensor:
    """Compute x + update · factors, with gradients of x and update.

    Args:
        x: [1, R, C, D].
        update: [1, R, C, D], with any strides of rows and columns.
        factors: [C, D] for all rows (axis 1), or [R, D] for all columns (axis 2).
        axis: the axis that shares the factors.
        fused: run the Triton kernel, which reads and writes each element once.
    """
    if not fused:
        return torch.addcmul(x, update, factors.unsqueeze(axis - 1))
    result: torch.Tensor = _AddScaled.apply(x, update, factors, axis)
    return result


class _AddScaled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, update: torch.Tensor, factors: torch.Tensor, axis: int
    ) -> torch.Tensor:
        ctx.save_for_backward(factors)
        ctx.axis, ctx.strides = axis, update.stride()
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        implementation_module("add_scaled", "triton").scale(result, x.contiguous(), update, factors, axis)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (factors,) = ctx.saved_tensors
        result = torch.empty_strided(
            gradient.shape, ctx.strides, dtype=gradient.dtype, device=gradient.device
        )
        implementation_module("add_scaled", "triton").scale(result, None, gradient, factors, ctx.axis)
        return gradient, result, None, None
