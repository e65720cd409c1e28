"""The pair bias of attention: a projection of the normalised pair representation to heads."""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["pair_bias"]


def pair_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute LN(pair) W with heads first (line 3 of Algorithms 7, 13 and 14).

    Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583 (2021).

    Args:
        pair: [N, N, C].
        norm_scale: [C], scale of the LayerNorm.
        norm_offset: [C], offset of the LayerNorm.
        weights: [C, H].
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [H, N, N] or [H, N, K], for the `pair_bias` argument of attention with the same implementation. The
        kernels round the number of keys up to K, and the bias of keys past the last residue is -inf.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "pair_bias",
        {
            "pair": (pair, "N N C"),
            "norm_scale": (norm_scale, "C"),
            "norm_offset": (norm_offset, "C"),
            "weights": (weights, "C H"),
        },
    )
    module = implementation_module("pair_bias", implementation, pair.device)
    result: torch.Tensor = module.pair_bias(pair, norm_scale, norm_offset, weights)
    return result
