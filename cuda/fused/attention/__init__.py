"""Gated self-attention along one axis of a two-dimensional representation.

It serves MSA row attention with pair bias (Algorithm 7), MSA column attention (Algorithm 8) and triangle
attention around starting and ending nodes (Algorithms 13 and 14). Algorithm numbers are those of the
supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.dispatch import check_shapes, implementation_module, needs_gradients, resolve_implementation

__all__ = ["AttentionWeights", "attend", "attention"]

WEIGHT_AXES = ("C", "C", "C H D", "C H D", "C H D", "C H D", "H D", "H D O", "O")


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated multi-head self-attention of LN(x) along axis 1, independently for each row.

    Args:
        x: [B, L, C], B rows of L positions.
        weights: the layer's parameters; the kernels take heads of 8, 16, 32 or 64 channels.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], or [H, L, K] with padded keys as `cuda.fused.pair_bias` returns it; added to the
            logits of every row. None for no bias.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [B, L, O], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    _check_arguments(x, weights, mask, pair_bias)
    if needs_gradients(x, pair_bias, *weights):
        # imported here, because inference does not need it
        from cuda.fused.attention import differentiable

        mask, pair_bias = (None if y is None else y[None] for y in (mask, pair_bias))
        fused = resolve_implementation(implementation, x.device) != "reference"
        return differentiable.attention(x[None], weights, mask, pair_bias, fused=fused)[0]
    module = implementation_module("attention", implementation, x.device)
    result: torch.Tensor = module.attention(x, weights, mask, pair_bias)
    return result


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    pair_bias: torch.Tensor,
    *,
    first_query: int = 0,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated attention of projected inputs: softmax(q kᵀ D^−½ + bias) v · sigmoid(g + b).

    Args:
        projected: [B, L, 4 H D], queries, keys, values and gates; the kernels take heads as `attention` does.
        gating_bias: [H, D].
        pair_bias: [H, Q, L], or with padded keys; see `attention`.
        first_query: position of the first of Q consecutive queries.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [B, Q, H D].

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "attention",
        {
            "projected": (projected, "B L *"),
            "gating_bias": (gating_bias, "H D"),
            "pair_bias": (pair_bias, "H Q *"),
        },
    )
    module = implementation_module("attention", implementation, projected.device)
    gated = projected.new_empty(len(projected), pair_bias.shape[1], gating_bias.numel())
    module.attend(projected, gating_bias, None, pair_bias, gated, first_query=first_query)
    return gated


def _check_arguments(
    x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor | None, pair_bias: torch.Tensor | None
) -> None:
    check_shapes(
        "attention",
        {"x": (x, "B L C"), "mask": (mask, "B L"), "pair_bias": (pair_bias, "H L *")},
        weights,
        WEIGHT_AXES,
    )
