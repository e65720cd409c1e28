"""Gated attention in plain PyTorch, over a bounded number of batch rows at a time."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm import layer_norm

# what a masked key's logit is lowered by
MASKED = 1e9


class AttentionWeights(NamedTuple):
    """Parameters of one attention layer: C input channels, H heads of D channels, O output channels.

    Args:
        norm_scale, norm_offset: [C], of the LayerNorm of the input.
        query: [C, H, D].
        key: [C, H, D]; in global attention [C, D], shared by the heads.
        value: as key.
        gating: [C, H, D].
        gating_bias: [H, D].
        output: [H, D, O].
        output_bias: [O].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    gating: torch.Tensor
    gating_bias: torch.Tensor
    output: torch.Tensor
    output_bias: torch.Tensor


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Gated multi-head self-attention along axis 1 of LN(x), independently for each entry of axis 0.

    Args:
        x: [B, L, C].
        weights: the layer's parameters.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], added to the logits of every entry of axis 0, or None.
        budget: elements of intermediates alive at once; the result does not depend on it.

    Returns:
        [B, L, O].
    """
    batch, length, channels = x.shape
    heads, width = weights.query.shape[1:]
    inner = heads * width
    # one product for the four projections
    four = (weights.query, weights.key, weights.value, weights.gating)
    projection = torch.cat([w.reshape(channels, inner) for w in four], dim=1)  # [C, 4*H*D]
    gating_bias = weights.gating_bias.reshape(inner)
    output = weights.output.reshape(inner, -1)  # [H*D, O]
    result = x.new_empty(batch, length, output.shape[-1])
    per_row = length * (channels + 5 * inner) + (0 if mask is None else heads * length * length)
    for rows in row_slices(x, per_row, budget):
        normed = layer_norm(x[rows], weights.norm_scale, weights.norm_offset)  # [b, L, C]
        projected = normed @ projection  # [b, L, 4*H*D]
        query, key, value, gate = projected.split(inner, dim=-1)  # each [b, L, H*D]
        attended = F.scaled_dot_product_attention(
            _by_head(query, heads),
            _by_head(key, heads),
            _by_head(value, heads),
            attn_mask=_bias(pair_bias, None if mask is None else mask[rows], x.dtype),
        )  # [b, H, L, D]
        gated = attended.transpose(1, 2).reshape(-1, length, inner)  # [b, L, H*D]
        gated = gated * torch.sigmoid(gate + gating_bias)
        torch.add(gated @ output, weights.output_bias, out=result[rows])
    return result


def add_attention(
    representation: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Add to a representation [B, L, C] in place what `attention` gives for it, and return it."""
    return representation.add_(attention(representation, weights, mask, pair_bias, budget))


def _by_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # [b, H, L, D]


def _bias(
    pair_bias: torch.Tensor | None, mask: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor | None:
    """What is added to the logits, broadcastable to [b, H, L, L]."""
    if mask is None:
        return None if pair_bias is None else pair_bias[None]
    lowered = (MASKED * (mask - 1.0)).to(dtype)[:, None, None, :]  # [b, 1, 1, L]
    return lowered if pair_bias is None else lowered + pair_bias


def global_attention(
    x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor, budget: int | None = None
) -> torch.Tensor:
    """Gated attention of LN(x) with one averaged query for each entry of axis 0, one key and value head.

    Args:
        x: [B, L, C].
        weights: the layer's parameters; key and value are [C, D].
        mask: [B, L], 1 for keys that may be attended to.
        budget: elements of intermediates alive at once; the result does not depend on it.

    Returns:
        [B, L, O].
    """
    batch, length, channels = x.shape
    heads, width = weights.query.shape[1:]
    inner = heads * width
    query_weights = weights.query.reshape(channels, inner)
    gating = weights.gating.reshape(channels, inner)
    gating_bias = weights.gating_bias.reshape(inner)
    output = weights.output.reshape(inner, -1)  # [H*D, O]
    result = x.new_empty(batch, length, output.shape[-1])
    for rows in row_slices(x, length * (2 * channels + 3 * inner), budget):
        part = layer_norm(x[rows], weights.norm_scale, weights.norm_offset)  # [b, L, C]
        present = mask[rows].to(x.dtype)  # [b, L]
        mean = (present[:, None] @ part).squeeze(1) / (present.sum(dim=1, keepdim=True) + 1e-10)  # [b, C]
        query = (mean @ query_weights).unflatten(-1, (heads, width)) * width**-0.5  # [b, H, D]
        key, value = part @ weights.key, part @ weights.value  # [b, L, D]
        logits = query @ key.transpose(1, 2) + MASKED * (present[:, None] - 1.0)  # [b, H, L]
        attended = (torch.softmax(logits, dim=-1) @ value).reshape(-1, 1, inner)  # [b, 1, H*D]
        gated = torch.sigmoid(part @ gating + gating_bias) * attended  # [b, L, H*D]
        torch.add(gated @ output, weights.output_bias, out=result[rows])
    return result
