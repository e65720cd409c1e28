"""Gated self-attention along one axis of a two-dimensional representation.

It serves MSA row attention with pair bias (Algorithm 7), MSA column attention (Algorithm 8) and triangle
attention around starting and ending nodes (Algorithms 13 and 14). Algorithm numbers are those of the
supplement of Jumper et al., Nature 596, 583 (2021).
"""

from types import ModuleType

import torch

from cuda.fused.attention import reference
from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.dispatch import check_shapes, resolve_implementation

__all__ = ["AttentionWeights", "add_attention", "attention", "resolve"]

WEIGHT_AXES = ("C", "C", "C H D", "C H D", "C H D", "C H D", "H D", "H D O", "O")


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated multi-head self-attention of LN(x) along axis 1, independently for each row.

    Args:
        x: [B, L, C], B rows of L positions.
        weights: the layer's parameters; the kernels take heads of 8, 16, 32 or 64 channels.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], added to the logits of every row, or None; with more keys than L as
            `cuda.fused.pair_bias` returns it.
        budget: maximum number of elements held in memory at once. Does not affect the result.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [B, L, O], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "attention",
        {"x": (x, "B L C"), "mask": (mask, "B L"), "pair_bias": (pair_bias, "H L *")},
        weights,
        WEIGHT_AXES,
    )
    result: torch.Tensor = resolve(implementation, x.device).attention(x, weights, mask, pair_bias, budget)
    return result


def add_attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Add the update to x [B, L, C] in place, and return x.

    Same arguments and errors as `attention`.
    """
    check_shapes(
        "attention",
        {"x": (x, "B L C"), "mask": (mask, "B L"), "pair_bias": (pair_bias, "H L *")},
        weights,
        WEIGHT_AXES,
    )
    module = resolve(implementation, x.device)
    result: torch.Tensor = module.add_attention(x, weights, mask, pair_bias, budget)
    return result


def resolve(implementation: str = "auto", device: torch.device | str = "cpu") -> ModuleType:
    """Return the module that implements the operation, whose functions do not check shapes.

    Args:
        implementation: see `cuda.fused.dispatch.resolve_implementation`.
        device: where the operation runs.
    """
    name = resolve_implementation(implementation, device)
    if name == "reference":
        return reference
    # deferred: Triton is optional, and Gluon differs between its versions
    if name == "hopper":
        from cuda.fused.attention import hopper

        return hopper
    from cuda.fused.attention import triton

    return triton
