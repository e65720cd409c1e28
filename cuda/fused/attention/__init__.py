"""Gated self-attention along one axis of a two-dimensional representation.

It serves MSA row attention with pair bias (Algorithm 7), MSA column attention (Algorithm 8) and triangle
attention around starting and ending nodes (Algorithms 13 and 14). Algorithm numbers are those of the
supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["AttentionWeights", "attend"]


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    pair_bias: torch.Tensor,
    *,
    first_query: int = 0,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated attention of projected inputs: softmax(q kᵀ D^−½ + bias) v · sigmoid(g + b), [B, Q, H D].

    `projected` [B, L, 4 H D] are queries, keys, values and gates; the kernels take heads of 8, 16, 32 or 64
    channels. `gating_bias` is [H, D], `pair_bias` [H, Q, L], or [H, Q, K] with padded keys; see
    `cuda.fused.pair_bias`. `first_query` is the position of the first of Q consecutive queries.

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
