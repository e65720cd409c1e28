"""The pair bias in plain PyTorch, over a bounded number of rows at a time."""

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm import layer_norm


def pair_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
    budget: int | None = None,
) -> torch.Tensor:
    """LN(pair) W with heads first (Algorithm 7, line 3, and Algorithms 13 and 14, line 3).

    Args:
        pair: [N, N, C].
        norm_scale, norm_offset: [C], of the LayerNorm.
        weights: [C, H].
        budget: elements of intermediates alive at once; the result does not depend on it.

    Returns:
        [H, N, N], as `attention` takes it.
    """
    length, _, channels = pair.shape
    heads = weights.shape[1]
    result = pair.new_empty(heads, length, length)
    for rows in row_slices(pair, length * (channels + heads), budget):
        normed = layer_norm(pair[rows], norm_scale, norm_offset)  # [n, N, C]
        result[:, rows] = (normed @ weights).permute(2, 0, 1)
    return result
