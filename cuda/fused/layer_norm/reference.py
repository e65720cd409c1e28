"""Layer normalisation in plain PyTorch."""

import torch
import torch.nn.functional as F

EPSILON = 1e-5


def layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Normalise the last axis to mean 0 and variance 1 (biased, epsilon 1e-5), then scale and shift.

    Args:
        x: [..., C].
        scale: [C].
        offset: [C].

    Returns:
        [..., C], of x's dtype.
    """
    return F.layer_norm(x, (x.shape[-1],), scale, offset, EPSILON)
