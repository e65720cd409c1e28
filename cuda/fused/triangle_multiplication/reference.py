"""Triangle multiplication in plain PyTorch: projections in chunks of rows, the product by channel."""

from typing import NamedTuple

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


class TriangleMultiplicationWeights(NamedTuple):
    """Parameters of one layer: C pair channels, M channels of the product.

    Args:
        norm_scale: [C], scale of the input's LayerNorm.
        norm_offset: [C], offset of the input's LayerNorm.
        left: [C, M], like right, left_gate and right_gate.
        left_bias: [M], like right_bias, left_gate_bias and right_gate_bias.
        right: [C, M].
        right_bias: [M].
        left_gate: [C, M].
        left_gate_bias: [M].
        right_gate: [C, M].
        right_gate_bias: [M].
        center_scale: [M], scale of the product's LayerNorm.
        center_offset: [M], offset of the product's LayerNorm.
        output: [M, C].
        output_bias: [C].
        gating: [C, C].
        gating_bias: [C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    left: torch.Tensor
    left_bias: torch.Tensor
    right: torch.Tensor
    right_bias: torch.Tensor
    left_gate: torch.Tensor
    left_gate_bias: torch.Tensor
    right_gate: torch.Tensor
    right_gate_bias: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    output: torch.Tensor
    output_bias: torch.Tensor
    gating: torch.Tensor
    gating_bias: torch.Tensor


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    add: bool = False,
) -> torch.Tensor:
    """Compute the update [N, N, C] gate_ij · W LN(Σ_k a_ik · b_jk), or with Σ_k a_kj · b_ki when incoming.

    As in DeepMind's code, incoming edges take the left factor from column j and the right one from column i,
    the other way round than Algorithm 12; trained parameters need this.

    The pair representation is [N, N, C]; its mask [N, N] is 1 for real pairs, or None for all. Edges leave i
    and j if outgoing (Algorithm 11), or enter them (Algorithm 12). With `add`, the update is added to pair in
    place, and pair returned.
    """
    inner = weights.left.shape[1]
    left, right = project_rows(pair, weights, mask).split(inner)  # each [M, N, N]
    # outgoing: Σ_k left[i, k] right[j, k]; incoming: Σ_k right[k, i] left[k, j]
    product = torch.bmm(left, right.transpose(1, 2)) if outgoing else torch.bmm(right.transpose(1, 2), left)
    del left, right
    return add_product(pair, product, weights) if add else finish(pair, product, weights)


def project_rows(
    pair: torch.Tensor, weights: TriangleMultiplicationWeights, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute rows of the left, then the right factor, [2*M, n, N], of pair [n, N, C] and mask [n, N]."""
    count, length, channels = pair.shape
    inner = weights.left.shape[1]
    projection = torch.cat([weights.left, weights.right, weights.left_gate, weights.right_gate], dim=1)
    bias = torch.cat([weights.left_bias, weights.right_bias, weights.left_gate_bias, weights.right_gate_bias])
    factors = pair.new_empty(2 * inner, count, length)
    for rows in row_slices(pair, length * (channels + 6 * inner)):
        normed = layer_norm(pair[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)  # [n*N, C]
        # channels first, as the product needs them
        projected = torch.addmm(bias[:, None], projection.T, normed.T)  # [4*M, n*N]
        values, gates = projected.split(2 * inner)  # each [2*M, n*N]: left, right
        values *= gates.sigmoid_()
        if mask is not None:
            values *= mask[rows].reshape(-1)
        factors[:, rows] = values.unflatten(1, (-1, length))  # [2*M, n, N]
    return factors


def finish(pair: torch.Tensor, product: torch.Tensor, weights: TriangleMultiplicationWeights) -> torch.Tensor:
    """Compute the update [n, N, C] of rows of pair [n, N, C] from those of the product [M, n, N]."""
    _, length, channels = pair.shape
    inner = weights.left.shape[1]
    result = pair.new_empty(pair.shape)
    for rows in row_slices(pair, length * (2 * inner + 3 * channels)):
        centered = product[:, rows].permute(1, 2, 0)  # [n, N, M]
        centered = layer_norm(centered, weights.center_scale, weights.center_offset)
        update = torch.addmm(weights.output_bias, centered.flatten(0, 1), weights.output)  # [n*N, C]
        normed = layer_norm(pair[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)
        gate = torch.sigmoid(torch.addmm(weights.gating_bias, normed, weights.gating))  # [n*N, C]
        torch.mul(update, gate, out=result[rows].view(-1, channels))
    return result


def add_product(
    pair: torch.Tensor, product: torch.Tensor, weights: TriangleMultiplicationWeights
) -> torch.Tensor:
    """Add the update to pair in place, and return pair; same arguments as `finish`."""
    return pair.add_(finish(pair, product, weights))
