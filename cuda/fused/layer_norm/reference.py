"""Layer normalisation in plain PyTorch."""

import torch
import torch.nn.functional as F

from cuda.fused import LAYER_NORM_EPSILON


def layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Normalise the last axis; see `cuda.fused.layer_norm.layer_norm`."""
    return F.layer_norm(x, (x.shape[-1],), scale, offset, LAYER_NORM_EPSILON)


def wide_layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Normalise the last axis in float32, or float64 if x is; same arguments and result as `layer_norm`."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return layer_norm(x.to(wide), scale.to(wide), offset.to(wide)).to(x.dtype)
