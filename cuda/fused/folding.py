"""LayerNorm's scale and offset folded into the weights of a projection that follows it."""

import torch


def without_norm(
    scale: torch.Tensor, offset: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [M, C] and bias [M] by which rows that are centred and divided have LN's projection.

    Float32, from the scale [C], the offset [C] and the weights [C, M].
    """
    wide = weights.float()
    return (scale.float()[:, None] * wide).T, offset.float() @ wide
