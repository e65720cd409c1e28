"""The gated product of a SwiGLU transition: silu(a) · b."""

import torch

from cuda.fused.dispatch import implementation_module

__all__ = ["swiglu"]


def swiglu(x: torch.Tensor, factor: float = 1.0, *, implementation: str = "auto") -> torch.Tensor:
    """Compute silu(a) · b · factor [..., W] from a and b side by side in x [..., 2 W], contiguous.

    A factor that is a power of two below 1 keeps large products in float16's range.

    Raises:
        ValueError: the number of columns is odd, or the implementation does not support the tensor.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"swiglu: x has {x.shape[-1]} columns, expected an even number")
    result: torch.Tensor = implementation_module("swiglu", implementation, x.device).swiglu(x, factor)
    return result
