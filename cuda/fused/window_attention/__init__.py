"""Gated attention of atoms within windows: a block of queries attends to the keys around it (Algorithm 7).

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["window_attention"]


def window_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor,
    starts: torch.Tensor,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute softmax(q kᵀ D^−½ + bias) v · sigmoid(g) within windows, [S, A, H D].

    Of S samples of A atoms, `query` [S, A, 2 H D] has queries, then logits of the gates, and `key` [S, A, 2 H
    D] keys, then values. The bias [W, H, Q, K] is added to the logits, −1e9 for masked keys; window w has
    queries from w Q on, and keys from starts[w] on, int64 [W]. Keys past the last atom repeat it and must be
    masked. For the implementation see `cuda.fused.dispatch.resolve_implementation`.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "window_attention",
        {
            "query": (query, "S A C"),
            "key": (key, "S A C"),
            "bias": (bias, "W H * *"),
            "starts": (starts, "W"),
        },
    )
    module = implementation_module("window_attention", implementation, query.device)
    result: torch.Tensor = module.window_attention(query, key, bias, starts)
    return result
