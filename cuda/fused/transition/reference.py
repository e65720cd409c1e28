"""The transition in plain PyTorch, over a bounded number of rows at a time."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


class TransitionWeights(NamedTuple):
    """Parameters of one layer: C channels, widened to W.

    Args:
        norm_scale, norm_offset: [C].
        widen, widen_bias: [C, W] and [W].
        narrow, narrow_bias: [W, C] and [C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    widen: torch.Tensor
    widen_bias: torch.Tensor
    narrow: torch.Tensor
    narrow_bias: torch.Tensor


class SwigluTransitionWeights(NamedTuple):
    """Parameters of one SwiGLU layer: C channels, widened to W; its projections have no biases.

    Args:
        norm_scale, norm_offset: [C].
        gate, widen: [C, W].
        narrow: [W, C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    gate: torch.Tensor
    widen: torch.Tensor
    narrow: torch.Tensor


def transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """The update W₂ relu(W₁ LN(x) + b₁) + b₂ of every position.

    Args:
        x: [..., C].
        weights: the layer's parameters.
        budget: elements of intermediates alive at once; the result does not depend on it.

    Returns:
        [..., C], the update.
    """

    def update(normed: torch.Tensor, out: torch.Tensor) -> None:
        wide = torch.addmm(weights.widen_bias, normed, weights.widen).relu_()  # [r, W]
        torch.addmm(weights.narrow_bias, wide, weights.narrow, out=out)

    return _by_rows(x, weights, update, budget)


def add_transition(x: torch.Tensor, weights: TransitionWeights, budget: int | None = None) -> torch.Tensor:
    """Add the transition's update to x [..., C] in place, and return x; arguments as `transition`."""
    return x.add_(transition(x, weights, budget))


def swiglu_transition(
    x: torch.Tensor, weights: SwigluTransitionWeights, budget: int | None = None
) -> torch.Tensor:
    """The update W₃ (silu(W₁ LN(x)) · W₂ LN(x)) of every position.

    Args:
        x: [..., C].
        weights: the layer's parameters.
        budget: elements of intermediates alive at once; the result does not depend on it.

    Returns:
        [..., C], the update.
    """

    def update(normed: torch.Tensor, out: torch.Tensor) -> None:
        wide = F.silu(normed @ weights.gate).mul_(normed @ weights.widen)  # [r, W]
        torch.mm(wide, weights.narrow, out=out)

    return _by_rows(x, weights, update, budget)


def _by_rows(
    x: torch.Tensor,
    weights: TransitionWeights | SwigluTransitionWeights,
    update: Callable[[torch.Tensor, torch.Tensor], None],
    budget: int | None,
) -> torch.Tensor:
    """What `update` writes to its second argument [r, C] for the normalised rows [r, C] of x."""
    flat = x.reshape(-1, x.shape[-1])  # [R, C]
    result = torch.empty_like(flat)
    for rows in row_slices(flat, sum(weights.widen.shape), budget):
        update(layer_norm(flat[rows], weights.norm_scale, weights.norm_offset), result[rows])
    return result.view(x.shape)
