"""Gated attention within windows with gradients, for training: a backward pass computes the weights again."""

from typing import Any

import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.window_attention import reference


def window_attention(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor, starts: torch.Tensor, *, fused: bool
) -> torch.Tensor:
    """Compute gated attention within windows.

    Same arguments and result as `cuda.fused.window_attention.window_attention`. The starts ascend, and masked
    keys have no gradient. `fused` runs the Triton kernels.
    """
    if not fused:
        return reference.window_attention(query, key, bias, starts)
    result: torch.Tensor = _WindowAttention.apply(query, key, bias, starts)
    return result


class _WindowAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        kernels = implementation_module("window_attention", "triton")
        result: torch.Tensor = kernels.window_attention(*tensors)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tensors = ctx.saved_tensors
        kernels = implementation_module("window_attention", "triton")
        query, key, bias = kernels.window_attention_backward(gradient, *tensors)
        return query, key, bias.to(tensors[2].dtype), None
