"""Global attention in plain PyTorch, computed in chunks of rows."""

import torch

from cuda.fused.attention.reference import MASK_PENALTY, AttentionWeights
from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


def global_attention(x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor) -> torch.Tensor:
    """Compute gated attention of LN(x) with one averaged query per row, and one key and value head.

    Args:
        x: [B, L, C], B rows of L positions.
        weights: the layer's parameters; key and value are [C, D].
        mask: [B, L], 1 for keys that may be attended to.

    Returns:
        [B, L, O], the update.
    """
    batch, length, channels = x.shape
    heads, width = weights.query.shape[1:]
    inner = heads * width
    query_weights = weights.query.reshape(channels, inner)
    gating = weights.gating.reshape(channels, inner)
    gating_bias = weights.gating_bias.reshape(inner)
    output = weights.output.reshape(inner, -1)  # [H*D, O]
    result = x.new_empty(batch, length, output.shape[-1])
    for rows in row_slices(x, length * (2 * channels + 3 * inner)):
        normed = layer_norm(x[rows], weights.norm_scale, weights.norm_offset)  # [b, L, C]
        keep = mask[rows].to(x.dtype)  # [b, L]
        mean = (keep[:, None] @ normed).squeeze(1) / (keep.sum(dim=1, keepdim=True) + 1e-10)  # [b, C]
        query = (mean @ query_weights).unflatten(-1, (heads, width)) * width**-0.5  # [b, H, D]
        key, value = normed @ weights.key, normed @ weights.value  # [b, L, D]
        logits = query @ key.transpose(1, 2) + MASK_PENALTY * (keep[:, None] - 1.0)  # [b, H, L]
        attended = (torch.softmax(logits, dim=-1) @ value).reshape(-1, 1, inner)  # [b, 1, H*D]
        gated = torch.sigmoid(normed @ gating + gating_bias) * attended  # [b, L, H*D]
        torch.add(gated @ output, weights.output_bias, out=result[rows])
    return result
