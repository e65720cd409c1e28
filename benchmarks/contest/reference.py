"""The operator of GPU MODE's contest "Triangle multiplicative update" in plain PyTorch.

It differs from AlphaFold2's in having no biases and in gating before the output projection.
"""

from typing import NamedTuple

import torch

from cuda.fused.layer_norm.reference import layer_norm


class GateFirstWeights(NamedTuple):
    """Parameters of the contest's operator: C channels, M channels of the product, no biases.

    Args:
        norm_scale: [C], scale of the input's LayerNorm.
        norm_offset: [C], offset of the input's LayerNorm.
        left: [C, M], like right, left_gate, right_gate and output_gate.
        right: [C, M].
        left_gate: [C, M].
        right_gate: [C, M].
        output_gate: [C, M].
        center_scale: [M], scale of the product's LayerNorm.
        center_offset: [M], offset of the product's LayerNorm.
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


def gate_first_triangle_multiplication(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
) -> torch.Tensor:
    """Compute W (LN(Σ_k a_ik · b_jk) ⊙ gate_ij) of every pair.

    Args:
        x: [B, N, N, C].
        weights: the layer's parameters.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: the contest's form; otherwise the sum is Σ_k a_kj · b_ki.

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
