"""Differentiable updates of single layers, with a batch axis, from the parameters of the network's modules.

Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583 (2021). B is the batch, S the
MSA rows, N the residues.
"""

import torch
import torch.nn.functional as F

from cuda.fused.attention import differentiable as attention
from cuda.fused.attention.reference import attend_globally
from cuda.fused.layer_norm import differentiable as layer_norms
from cuda.fused.outer_product_mean import differentiable as outer_product_mean
from cuda.fused.transition import differentiable as transition
from cuda.fused.triangle_multiplication import differentiable as triangle_multiplication
from model.alphafold2.modules.evoformer import (
    MsaColumnAttention,
    MsaRowAttention,
    OuterProductMean,
    TriangleAttention,
    TriangleMultiplication,
)
from model.layers.common import Attention, LayerNorm, Linear, Transition

# axis along which a dropout mask is shared: rows of [B, rows, columns, C], or its columns
ROWS, COLUMNS = 1, 2


def linear(x: torch.Tensor, layer: Linear) -> torch.Tensor:
    """Apply a linear layer to [..., in] in x's dtype."""
    return F.linear(x, layer.weights.to(x.dtype).T, layer.bias.to(x.dtype))


def layer_norm(x: torch.Tensor, norm: LayerNorm, fused: bool = False) -> torch.Tensor:
    """Normalise [..., C] in float32; return x's dtype."""
    return layer_norms.layer_norm(x, norm.scale, norm.offset, fused=fused)


def drop(x: torch.Tensor, rate: float, shared_axis: int, dropout: torch.Tensor) -> torch.Tensor:
    """Drop entries of an update x [B, rows, columns, C] with one mask for the whole shared axis.

    The axis is ROWS or COLUMNS. An entry becomes 0 with the probability rate · dropout, the others are
    divided by that of being kept; the scalar `dropout` is 1 to apply dropout, 0 for none.
    """
    shape = [1 if axis == shared_axis else size for axis, size in enumerate(x.shape)]
    keep_probability = 1.0 - rate * dropout
    return x * ((torch.rand(shape, device=x.device) < keep_probability) / keep_probability).to(x.dtype)


def gated_attention(
    x: torch.Tensor, layer: Attention, fused: bool, bias: torch.Tensor | None, mask: torch.Tensor | None
) -> torch.Tensor:
    """Return gated self-attention along axis 2 of normalised x [B, R, L, C], for each entry of axis 1 alone.

    The bias is [B, H, L, L], the same for all R, or None. The mask [B, R, L] float32, or [B, 1, L] for all R,
    is 1 for keys that may be attended to; None for all.
    """
    weights = (layer.query, layer.key, layer.value, layer.gating)
    projection = torch.cat([w.flatten(1) for w in weights], dim=1).to(x.dtype)  # [C, 4*H*D]
    gating_bias = layer.gating_bias.to(x.dtype)
    gated = attention.attend(x @ projection, gating_bias, mask, bias, fused=fused)  # [B, R, L, H*D]
    return F.linear(gated, layer.output.flatten(0, 1).to(x.dtype).T, layer.output_bias.to(x.dtype))


def pair_bias(pair: torch.Tensor, norm: LayerNorm, weights: torch.Tensor) -> torch.Tensor:
    """Return LN(pair) W with heads first, [B, H, N, N]."""
    return (layer_norm(pair, norm) @ weights.to(pair.dtype)).permute(0, 3, 1, 2).contiguous()


def msa_row_update(
    layer: MsaRowAttention, msa: torch.Tensor, pair: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Return the update of Algorithm 7; msa [B, S, N, C], pair [B, N, N, Z], mask [B, S, N] or [B, 1, N]."""
    bias = pair_bias(pair, layer.pair_norm, layer.pair_bias)
    return gated_attention(
        layer_norm(msa, layer.query_norm), layer.attention, layer.kernels.fused, bias, mask
    )


def msa_column_update(layer: MsaColumnAttention, msa: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the update of Algorithm 8 or 19; msa [B, S, N, C], mask [B, S, N] or, for 8, [B, S, 1]."""
    columns = layer_norm(msa, layer.query_norm).transpose(1, 2)  # [B, N, S, C]
    column_mask = mask.transpose(1, 2)
    if layer.is_global:
        update = attend_globally(columns, layer.gather_operands(), column_mask)
    else:
        update = gated_attention(columns, layer.attention, layer.kernels.fused, None, column_mask)
    return update.transpose(1, 2)


def transition_update(layer: Transition, x: torch.Tensor) -> torch.Tensor:
    """Return the update of Algorithms 9 and 15; x [..., C]."""
    return transition.transition(x, layer.gather_operands(), fused=layer.kernels.fused)


def outer_product_mean_update(layer: OuterProductMean, msa: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the update [B, N, N, Z] of Algorithm 10; msa [B, S, N, C], mask [B, S, N]."""
    return outer_product_mean.outer_product_mean(
        msa, layer.gather_operands(), mask, fused=layer.kernels.fused
    )


def triangle_multiplication_update(
    layer: TriangleMultiplication, pair: torch.Tensor, pair_mask: torch.Tensor | None
) -> torch.Tensor:
    """Return the update of Algorithm 11 or 12; pair [B, N, N, Z], pair_mask [B, N, N] or None."""
    return triangle_multiplication.triangle_multiplication(
        pair, layer.gather_operands(), pair_mask, outgoing=layer.outgoing, fused=layer.kernels.fused
    )


def triangle_attention_update(
    layer: TriangleAttention, pair: torch.Tensor, seq_mask: torch.Tensor | None
) -> torch.Tensor:
    """Return the update of Algorithm 13 or 14; pair [B, N, N, Z], seq_mask [B, N] or None.

    Keys are masked by residue, not by pair. Only the rows of padding differ, and no residue reads them.
    """
    rows = pair if layer.starting else pair.transpose(1, 2)
    normed = layer_norm(rows, layer.query_norm, layer.kernels.fused)
    bias = (normed @ layer.pair_bias.to(pair.dtype)).permute(0, 3, 1, 2).contiguous()  # [B, H, N, N]
    key_mask = None if seq_mask is None else seq_mask[:, None]
    update = gated_attention(normed, layer.attention, layer.kernels.fused, bias, key_mask)
    return update if layer.starting else update.transpose(1, 2)
