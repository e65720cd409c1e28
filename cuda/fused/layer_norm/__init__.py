"""Layer normalisation over the last axis."""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["layer_norm"]


def layer_norm(
    x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, *, implementation: str = "auto"
) -> torch.Tensor:
    """Normalise the last axis to mean 0 and variance 1 (biased, epsilon 1e-5), then scale and shift.

    Returns x's dtype. x is [..., C], scale and offset are [C]; the kernel takes at most 1024 channels.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("layer_norm", {"x": (x, "... C"), "scale": (scale, "C"), "offset": (offset, "C")})
    module = implementation_module("layer_norm", implementation, x.device)
    result: torch.Tensor = module.layer_norm(x, scale, offset)
    return result
