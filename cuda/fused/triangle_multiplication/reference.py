"""Triangle multiplication in plain PyTorch; projections go by row, the product by channel."""

from typing import NamedTuple

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


class TriangleMultiplicationWeights(NamedTuple):
    """Parameters of one layer: C pair channels, M channels of the product.

    Args:
        norm_scale, norm_offset: [C], of the input's normalisation.
        left, left_bias: [C, M] and [M]; so are left_gate, right and right_gate with their biases.
        center_scale, center_offset: [M], of the product's normalisation.
        output, output_bias: [M, C] and [C].
        gating, gating_bias: [C, C] and [C].
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


class GateFirstWeights(NamedTuple):
    """Parameters of the contest's form: C channels, M channels of the product, no biases.

    Args:
        norm_scale, norm_offset: [C], of the input's normalisation.
        left, right, left_gate, right_gate, output_gate: [C, M].
        center_scale, center_offset: [M], of the product's normalisation.
        output: [M, C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    left_gate: torch.Tensor
    right_gate: torch.Tensor
    output_gate: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    output: torch.Tensor


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    budget: int | None = None,
) -> torch.Tensor:
    """The update z_ij += gate_ij · W LN(Σ_k a_ik · b_jk), or with Σ_k a_kj · b_ki when incoming.

    DeepMind's incoming edges take the left factor from column j and the right one from column i, the other
    way round than Algorithm 12; trained parameters need it so.

    Args:
        pair: [N, N, C].
        weights: the layer's parameters.
        mask: [N, N], 1 for real pairs, or None for all.
        outgoing: whether edges leave i and j (Algorithm 11) or enter them (Algorithm 12).
        budget: elements of intermediates alive at once beside the two factors and their product; the result
            does not depend on it.

    Returns:
        [N, N, C], the update.
    """
    length, _, channels = pair.shape
    inner = weights.left.shape[1]
    projection = torch.cat([weights.left, weights.right, weights.left_gate, weights.right_gate], dim=1)
    bias = torch.cat([weights.left_bias, weights.right_bias, weights.left_gate_bias, weights.right_gate_bias])
    factors = pair.new_empty(2 * inner, length, length)
    for rows in row_slices(pair, length * (channels + 6 * inner), budget):
        normed = layer_norm(pair[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)  # [n*N, C]
        # channels first, as the product below needs them
        projected = torch.addmm(bias[:, None], projection.T, normed.T)  # [4*M, n*N]
        values, gates = projected.split(2 * inner)  # each [2*M, n*N]: left, right
        values *= gates.sigmoid_()
        if mask is not None:
            values *= mask[rows].reshape(-1)
        factors[:, rows] = values.unflatten(1, (-1, length))  # [2*M, n, N]
    left, right = factors.split(inner)  # each [M, N, N]
    # outgoing: Σ_k left[i, k] right[j, k]; incoming: Σ_k right[k, i] left[k, j]
    product = torch.bmm(left, right.transpose(1, 2)) if outgoing else torch.bmm(right.transpose(1, 2), left)
    del factors, left, right
    result = pair.new_empty(pair.shape)
    for rows in row_slices(pair, length * (2 * inner + 3 * channels), budget):
        centered = product[:, rows].permute(1, 2, 0)  # [n, N, M]
        centered = layer_norm(centered, weights.center_scale, weights.center_offset)
        update = torch.addmm(weights.output_bias, centered.flatten(0, 1), weights.output)  # [n*N, C]
        normed = layer_norm(pair[rows], weights.norm_scale, weights.norm_offset).flatten(0, 1)
        gate = torch.sigmoid(torch.addmm(weights.gating_bias, normed, weights.gating))  # [n*N, C]
        torch.mul(update, gate, out=result[rows].view(-1, channels))
    return result


def add_triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    budget: int | None = None,
) -> torch.Tensor:
    """Add the update to pair [N, N, C] in place, and return it; arguments as `triangle_multiplication`."""
    return pair.add_(triangle_multiplication(pair, weights, mask, outgoing=outgoing, budget=budget))


def gate_first_triangle_multiplication(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
) -> torch.Tensor:
    """W (LN(Σ_k a_ik · b_jk) ⊙ gate_ij), the operator of GPU MODE's contest "Triangle multiplicative update".

    It differs from AlphaFold2's in having no biases and in gating before the output projection.

    Args:
        x: [B, N, N, C].
        weights: the layer's parameters.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: the contest's; otherwise Σ_k a_kj · b_ki.

    Returns:
        [B, N, N, C].
    """
    normed = layer_norm(x, weights.norm_scale, weights.norm_offset)
    left = (normed @ weights.left) * torch.sigmoid(normed @ weights.left_gate)  # [B, N, N, M]
    right = (normed @ weights.right) * torch.sigmoid(normed @ weights.right_gate)
    if mask is not None:
        left, right = left * mask[..., None], right * mask[..., None]
    equation = "bikm,bjkm->bijm" if outgoing else "bkjm,bkim->bijm"
    product = layer_norm(torch.einsum(equation, left, right), weights.center_scale, weights.center_offset)
    return (product * torch.sigmoid(normed @ weights.output_gate)) @ weights.output
