"""The outer product mean, from the MSA to the pair representation (Algorithm 10).

The algorithm number is that of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module, needs_gradients, resolve_implementation
from cuda.fused.outer_product_mean.reference import OuterProductMeanWeights

__all__ = ["OuterProductMeanWeights", "add_outer_product_mean", "outer_product_mean"]

WEIGHT_AXES = ("C", "C", "C E", "E", "C E", "E", "E E Z", "Z")


def outer_product_mean(
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute the update (W Σ_s a_si ⊗ b_sj + bias) / (ε + Σ_s m_si m_sj) of every pair, ε = 1e-3.

    The bias is divided too, as in DeepMind's code.

    Args:
        msa: [S, N, C]; the kernels take at most 256 channels.
        weights: the layer's parameters; the kernels take E of 4, 8, 16 or 32 and Z of at most 128.
        mask: [S, N], 1 for real positions, or None for all.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [N, N, Z], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("outer_product_mean", {"msa": (msa, "S N C"), "mask": (mask, "S N")}, weights, WEIGHT_AXES)
    if needs_gradients(msa, *weights):
        # imported here, because inference does not need it
        from cuda.fused.outer_product_mean import differentiable

        masks = None if mask is None else mask[None]
        fused = resolve_implementation(implementation, msa.device) != "reference"
        return differentiable.outer_product_mean(msa[None], weights, masks, fused=fused)[0]
    pair = msa.new_zeros(msa.shape[1], msa.shape[1], weights.output.shape[-1])
    return add_outer_product_mean(pair, msa, weights, mask, implementation=implementation)


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Add the update to pair [N, N, Z] in place, and return it; the kernels need a contiguous pair.

    The other arguments and errors are those of `outer_product_mean`.
    """
    check_shapes(
        "outer_product_mean",
        {"pair": (pair, "N N Z"), "msa": (msa, "S N C"), "mask": (mask, "S N")},
        weights,
        WEIGHT_AXES,
    )
    module = implementation_module("outer_product_mean", implementation, msa.device)
    result: torch.Tensor = module.add_outer_product_mean(pair, msa, weights, mask)
    return result
