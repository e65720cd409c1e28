"""The transition in plain PyTorch, computed in chunks of rows."""

from typing import NamedTuple

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


class TransitionWeights(NamedTuple):
    """Parameters of one layer: C channels, widened to W.

    Args:
        norm_scale: [C].
        norm_offset: [C].
        widen: [C, W].
        widen_bias: [W].
        narrow: [W, C].
        narrow_bias: [C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    widen: torch.Tensor
    widen_bias: torch.Tensor
    narrow: torch.Tensor
    narrow_bias: torch.Tensor


def transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """Compute the update of every position; see `cuda.fused.transition.transition`."""
    flat = x.reshape(-1, x.shape[-1])  # [R, C]
    result = torch.empty_like(flat)
    for rows in row_slices(flat, sum(weights.widen.shape), budget):
        normed = layer_norm(flat[rows], weights.norm_scale, weights.norm_offset)  # [r, C]
        wide = torch.addmm(weights.widen_bias, normed, weights.widen).relu_()  # [r, W]
        torch.addmm(weights.narrow_bias, wide, weights.narrow, out=result[rows])
    return result.view(x.shape)


def add_transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """Add the update to x in place, and return x; see `cuda.fused.transition.add_transition`."""
    return x.add_(transition(x, weights, budget))
