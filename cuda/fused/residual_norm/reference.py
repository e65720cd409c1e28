"""The gated residual connection and the conditioned LayerNorm in plain PyTorch."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from cuda.fused import LAYER_NORM_EPSILON

if TYPE_CHECKING:
    from cuda.fused.residual_norm import GatedUpdate


def residual_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    update: "GatedUpdate | None",
    dtype: torch.dtype,
    logits: bool = False,
) -> torch.Tensor:
    """Add an update to x in place and return its conditioned LayerNorm; see `cuda.fused.residual_norm`."""
    if update is not None:
        add_gated(x, update)
    normed = F.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPSILON)
    return torch.addcmul(shift.to(x), (scale.to(x).sigmoid() if logits else scale.to(x)), normed).to(dtype)


def add_gated(x: torch.Tensor, update: "GatedUpdate") -> torch.Tensor:
    """Add an update to x in place, and return x."""
    gated = (update.gate.sigmoid() if update.logits else update.gate) * update.update
    return x.add_(gated if update.mask is None else gated * update.mask[:, None])
