"""Triangle multiplicative update of the pair representation, outgoing and incoming (Algorithms 11 and 12).

Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module, needs_gradients, resolve_implementation
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights

__all__ = ["TriangleMultiplicationWeights", "triangle_multiplication"]

WEIGHT_AXES = ("C", "C", *("C M", "M") * 4, "M", "M", "M C", "C", "C C", "C")


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute the update gate_ij · W LN(Σ_k a_ik · b_jk), or with Σ_k a_kj · b_ki when incoming.

    As in DeepMind's code, incoming edges take the left factor from column j and the right one from column i,
    the other way round than Algorithm 12; trained parameters need this.

    Args:
        pair: [N, N, C]; the kernels take at most 256 channels.
        weights: the layer's parameters.
        mask: [N, N], 1 for real pairs, or None for all.
        outgoing: whether edges leave i and j (Algorithm 11) or enter them (Algorithm 12).
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [N, N, C], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "triangle_multiplication", {"pair": (pair, "N N C"), "mask": (mask, "N N")}, weights, WEIGHT_AXES
    )
    if needs_gradients(pair, *weights):
        # imported here, because inference does not need it
        from cuda.fused.triangle_multiplication import differentiable

        masks = None if mask is None else mask[None]
        fused = resolve_implementation(implementation, pair.device) != "reference"
        return differentiable.triangle_multiplication(
            pair[None], weights, masks, outgoing=outgoing, fused=fused
        )[0]
    module = implementation_module("triangle_multiplication", implementation, pair.device)
    result: torch.Tensor = module.triangle_multiplication(pair, weights, mask, outgoing=outgoing)
    return result
