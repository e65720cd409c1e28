"""The pair bias in plain PyTorch, computed in chunks of rows."""

import torch

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm


def pair_bias(
    pair: torch.Tensor, norm_scale: torch.Tensor, norm_offset: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Compute LN(pair) W with heads first, [H, n, N], of any rows [n, N, C] of the pair representation.

    Scale and offset of LayerNorm are [C], weights [C, H].
    """
    count, length, channels = pair.shape
    heads = weights.shape[1]
    result = pair.new_empty(heads, count, length)
    for rows in row_slices(pair, length * (channels + heads)):
        normed = layer_norm(pair[rows], norm_scale, norm_offset)  # [n, N, C]
        result[:, rows] = (normed @ weights).permute(2, 0, 1)
    return result
