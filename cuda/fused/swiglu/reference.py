"""The gated product of a SwiGLU transition in plain PyTorch."""

import torch
import torch.nn.functional as F


def swiglu(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Compute silu(a) · b · factor; see `cuda.fused.swiglu.swiglu`."""
    a, b = x.chunk(2, dim=-1)
    return F.silu(a).mul_(factor).mul_(b)
