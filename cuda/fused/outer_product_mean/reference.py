"""The outer product mean in plain PyTorch, over a bounded number of residues at a time."""

from typing import NamedTuple

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm

EPSILON = 1e-3


class OuterProductMeanWeights(NamedTuple):
    """Parameters of one layer: C MSA channels, E channels of each factor, Z pair channels.

    Args:
        norm_scale, norm_offset: [C].
        left, left_bias: [C, E] and [E].
        right, right_bias: [C, E] and [E].
        output, output_bias: [E, E, Z] and [Z].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    left: torch.Tensor
    left_bias: torch.Tensor
    right: torch.Tensor
    right_bias: torch.Tensor
    output: torch.Tensor
    output_bias: torch.Tensor


def outer_product_mean(
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """The update z_ij += (W Σ_s a_si ⊗ b_sj + bias) / (ε + Σ_s m_si m_sj), ε = 1e-3.

    The bias is divided too, as in DeepMind's code.

    Args:
        msa: [S, N, C].
        weights: the layer's parameters.
        mask: [S, N], 1 for real positions, or None for all.
        budget: elements of intermediates alive at once beside the two factors; the result does not depend on
            it.

    Returns:
        [N, N, Z], the update.
    """
    sequences, length, channels = msa.shape
    inner = weights.left.shape[1]
    projection = torch.cat([weights.left, weights.right], dim=1)  # [C, 2*E]
    bias = torch.cat([weights.left_bias, weights.right_bias])
    left = msa.new_empty(length, inner, sequences)
    right = msa.new_empty(sequences, length, inner)
    for rows in row_slices(msa, length * (channels + 3 * inner), budget):
        normed = layer_norm(msa[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)  # [s*N, C]
        projected = torch.addmm(bias, normed, projection)  # [s*N, 2*E]
        if mask is not None:
            projected = projected * mask[rows].reshape(-1, 1)
        projected = projected.view(-1, length, 2 * inner)
        left[:, :, rows] = projected[:, :, :inner].permute(1, 2, 0)  # [N, E, s]
        right[rows] = projected[:, :, inner:]
    right = right.view(sequences, length * inner)
    output = weights.output.reshape(inner * inner, -1)  # [E*E, Z]
    # [N, N], or one number for all
    count = sequences + EPSILON if mask is None else mask.T @ mask + EPSILON
    result = msa.new_empty(length, length, output.shape[-1])
    for rows in row_slices(left, 2 * inner * inner * length, budget):
        outer = left[rows].flatten(0, 1) @ right  # [n*E, N*E]
        outer = outer.view(-1, inner, length, inner).transpose(1, 2)  # [n, N, E, E]
        update = torch.addmm(weights.output_bias, outer.reshape(-1, inner * inner), output)  # [n*N, Z]
        shared = count[rows, :, None] if isinstance(count, torch.Tensor) else count
        torch.div(update.view(-1, length, output.shape[-1]), shared, out=result[rows])
    return result


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Add the update to pair [N, N, Z] in place, and return it; arguments as `outer_product_mean`."""
    return pair.add_(outer_product_mean(msa, weights, mask, budget))
