"""Gated attention in plain PyTorch, computed in chunks of rows."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm

# subtracted from the logits of masked keys
MASK_PENALTY = 1e9
# the kernels' pair bias has a multiple of this many keys, so that tiles are whole and loads aligned
KEY_ALIGNMENT = 32


def padded_keys(count: int) -> int:
    """Return a number of keys rounded up to a multiple of KEY_ALIGNMENT."""
    return count + -count % KEY_ALIGNMENT


class AttentionWeights(NamedTuple):
    """Parameters of one attention layer: C input channels, H heads of D channels, O output channels.

    Args:
        norm_scale: [C], scale of the LayerNorm of the input.
        norm_offset: [C], offset of the LayerNorm of the input.
        query: [C, H, D].
        key: [C, H, D]; in global attention [C, D], shared by the heads.
        value: shape as key.
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
    *,
    add: bool = False,
) -> torch.Tensor:
    """Compute gated multi-head self-attention of LN(x) along axis 1, independently for each row.

    Args:
        x: [B, L, C], B rows of L positions.
        weights: the layer's parameters.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], or [H, L, K] with padded keys; added to the logits of every row, or None.
        add: add the update to x in place, and return x.

    Returns:
        [B, L, O], the update.
    """
    batch, length, channels = x.shape
    heads, width = weights.query.shape[1:]
    inner = heads * width
    # one product for the four projections
    projections = (weights.query, weights.key, weights.value, weights.gating)
    projection = torch.cat([w.reshape(channels, inner) for w in projections], dim=1)  # [C, 4*H*D]
    output = weights.output.reshape(inner, -1)  # [H*D, O]
    result = x.new_empty(batch, length, output.shape[-1])
    elements_per_row = length * (channels + 5 * inner) + (0 if mask is None else heads * length * length)
    for rows in row_slices(x, elements_per_row):
        normed = layer_norm(x[rows], weights.norm_scale, weights.norm_offset)  # [b, L, C]
        projected = normed @ projection  # [b, L, 4*H*D]
        gated = x.new_empty(*projected.shape[:2], inner)
        attend(projected, weights.gating_bias, None if mask is None else mask[rows], pair_bias, gated)
        torch.add(gated @ output, weights.output_bias, out=result[rows])
    return x.add_(result) if add else result


def global_attention(x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor) -> torch.Tensor:
    """Compute `attend_globally` of LN(x) in chunks of rows: x [B, L, C] and mask [B, L] to [B, L, O]."""
    length = x.shape[1]
    result = x.new_empty(*x.shape[:2], weights.output.shape[-1])
    # factor 4: small chunks are as fast, and the result is stored beside x
    for rows in row_slices(x, 4 * length * (2 * x.shape[2] + 3 * weights.gating_bias.numel())):
        normed = layer_norm(x[rows], weights.norm_scale, weights.norm_offset)
        result[rows] = attend_globally(normed, weights, mask[rows])
    return result


def attend_globally(normed: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor) -> torch.Tensor:
    """Compute gated attention with one averaged query per row, and one key and value head (Algorithm 19).

    Args:
        normed: [..., L, C], rows of L normalised positions.
        weights: the layer's parameters, of any dtype; key and value are [C, D].
        mask: [..., L], 1 for keys that may be attended to.

    Returns:
        [..., L, O], the update.
    """
    w = AttentionWeights(*(x.to(normed.dtype) for x in weights))
    heads, width = w.query.shape[1:]
    # half-precision types have no exact numbers of thousands
    count = mask.sum(dim=-1, keepdim=True, dtype=torch.promote_types(mask.dtype, torch.float32)) + 1e-10
    total = (mask.to(normed.dtype)[..., None, :] @ normed).squeeze(-2)  # [..., C]
    mean = (total / count).to(normed.dtype)
    query = (mean @ w.query.flatten(1)).unflatten(-1, (heads, width)) * width**-0.5  # [..., H, D]
    key, value = normed @ w.key, normed @ w.value  # [..., L, D]
    logits = query @ key.transpose(-1, -2)  # [..., H, L]
    if logits.element_size() < 4:
        logits = logits.float()
    logits = logits + MASK_PENALTY * (mask[..., None, :] - 1.0)
    attended = (torch.softmax(logits, dim=-1).to(value.dtype) @ value).flatten(-2)  # [..., H*D]
    gate = torch.sigmoid(normed @ w.gating.flatten(1) + w.gating_bias.flatten())  # [..., L, H*D]
    return (gate * attended[..., None, :]) @ w.output.flatten(0, 1) + w.output_bias


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    *,
    first_query: int = 0,
) -> None:
    """Write gated attention of queries, keys, values and gates [B, L, 4*H*D] to gated [B, Q, H*D].

    The gates' bias is [H, D], the mask [B, L] or None, the pair bias [H, Q, L] or None.
    """
    heads, inner = len(gating_bias), gating_bias.numel()
    query, key, value, gate = projected.split(inner, dim=-1)  # each [B, L, H*D]
    query, gate = (x[:, first_query : first_query + gated.shape[1]] for x in (query, gate))
    attended = F.scaled_dot_product_attention(
        _split_heads(query, heads),
        _split_heads(key, heads),
        _split_heads(value, heads),
        attn_mask=_logit_bias(pair_bias, mask, projected),
    )  # [B, H, L, D]
    torch.mul(
        attended.transpose(1, 2).flatten(-2), torch.sigmoid(gate + gating_bias.reshape(inner)), out=gated
    )


def _split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # [b, H, L, D]


def _logit_bias(
    pair_bias: torch.Tensor | None, mask: torch.Tensor | None, projected: torch.Tensor
) -> torch.Tensor | None:
    """Return the sum of pair bias and mask penalty, broadcastable to [b, H, Q, L], or None without both."""
    if pair_bias is not None:
        pair_bias = pair_bias[..., : projected.shape[1]]  # without padded keys
    if mask is None:
        return None if pair_bias is None else pair_bias[None]
    penalty = (MASK_PENALTY * (mask - 1.0)).to(projected.dtype)[:, None, None, :]  # [b, 1, 1, L]
    return penalty if pair_bias is None else penalty + pair_bias
