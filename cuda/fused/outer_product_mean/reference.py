"""The outer product mean in plain PyTorch, computed in chunks of residues."""

from typing import NamedTuple

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm

# added to the number of sequences that two residues share
EPSILON = 1e-3


class OuterProductMeanWeights(NamedTuple):
    """Parameters of one layer: C MSA channels, E channels of each factor, Z pair channels.

    Args:
        norm_scale: [C].
        norm_offset: [C].
        left: [C, E].
        left_bias: [E].
        right: [C, E].
        right_bias: [E].
        output: [E, E, Z].
        output_bias: [Z].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    left: torch.Tensor
    left_bias: torch.Tensor
    right: torch.Tensor
    right_bias: torch.Tensor
    output: torch.Tensor
    output_bias: torch.Tensor


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add (W Σ_s a_si ⊗ b_sj + bias) / (ε + Σ_s m_si m_sj) to pair [N, N, Z] in place, and return it.

    The bias is divided too, as in DeepMind's code. The MSA is [S, N, C]; its mask [S, N] is 1 for real
    positions, None for all.
    """
    left, right = project_residues(msa, weights, mask)
    return add_contraction(pair, left, right, weights, shared_counts(mask))


def project_residues(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the left and the right factor of some residues, msa [S, n, C] with mask [S, n] or None.

    Returns:
        The left factor in the form that `add_contraction` takes, and the right one [S, n, E].
    """
    sequences, length, channels = msa.shape
    inner = weights.left.shape[1]
    projection = torch.cat([weights.left, weights.right], dim=1)  # [C, 2*E]
    bias = torch.cat([weights.left_bias, weights.right_bias])
    left = msa.new_empty(length, inner, sequences)
    right = msa.new_empty(sequences, length, inner)
    for rows in row_slices(msa, length * (channels + 3 * inner)):
        normed = layer_norm(msa[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)  # [s*n, C]
        projected = torch.addmm(bias, normed, projection)  # [s*n, 2*E]
        if mask is not None:
            projected = projected * mask[rows].reshape(-1, 1)
        projected = projected.view(rows.stop - rows.start, length, 2 * inner)
        left[:, :, rows] = projected[:, :, :inner].permute(1, 2, 0)  # [n, E, s]
        right[rows] = projected[:, :, inner:]
    return left, right


def shared_counts(mask: torch.Tensor | None, residues: slice = slice(None)) -> torch.Tensor | None:
    """Return how many sequences two residues share, plus ε, [n, N] of rows n; None without a mask."""
    return None if mask is None else mask[:, residues].T @ mask + EPSILON


def contract_factors(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
) -> torch.Tensor:
    """Compute the update [n, N, Z] of some rows of the pair representation.

    The left factor of the rows is [n, E, S], the right one of all residues [S, N, E]. The update is divided
    by counts [n, N], or by S + ε without.
    """
    sequences, length, inner = right.shape
    right = right.view(sequences, length * inner)
    output = weights.output.reshape(inner * inner, -1)  # [E*E, Z]
    result = left.new_empty(left.shape[0], length, output.shape[-1])
    for rows in row_slices(left, 2 * inner * inner * length):
        outer = left[rows].flatten(0, 1) @ right  # [n*E, N*E]
        outer = outer.view(-1, inner, length, inner).transpose(1, 2)  # [n, N, E, E]
        update = torch.addmm(weights.output_bias, outer.reshape(-1, inner * inner), output)  # [n*N, Z]
        shared = sequences + EPSILON if counts is None else counts[rows, :, None]
        torch.div(update.view(-1, length, output.shape[-1]), shared, out=result[rows])
    return result


def add_contraction(
    pair: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
) -> torch.Tensor:
    """Add the update to rows of pair [n, N, Z] in place, and return them; see `contract_factors`."""
    return pair.add_(contract_factors(left, right, weights, counts))
