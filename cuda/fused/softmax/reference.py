"""Softmax with scale, mask and bias in plain PyTorch."""

import torch

from cuda.fused.attention.reference import MASKED


def softmax(
    logits: torch.Tensor,
    scale: float = 1.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(scale · logits + bias + 1e9 (mask − 1)) over the last axis.

    Args:
        logits: [B, H, Q, K].
        scale: of the logits alone.
        mask: [B, K], 1 for keys that may be attended to, or None for all.
        bias: [H, Q, K], added for every entry of axis 0, or None.

    Returns:
        [B, H, Q, K], of logits' dtype; the sum is in float32 or wider.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)) * scale
    if bias is not None:
        wide = wide + bias
    if mask is not None:
        wide = wide + (MASKED * (mask.to(wide.dtype) - 1.0))[:, None, None]
    return torch.softmax(wide, dim=-1).to(logits.dtype)
