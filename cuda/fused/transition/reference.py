"""The transition in plain PyTorch, computed in chunks of rows."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm.reference import layer_norm

# adjacent columns of a, and then of b, in the widening matrix of a gated layer
GATE_BLOCK = 64


class TransitionWeights(NamedTuple):
    """Parameters of one layer: C channels, widened to W.

    The hidden layer is relu(h) of h [W] or, if the widening matrix has 2 W columns, silu(a) b: GATE_BLOCK
    columns of a alternate with as many of b.

    Args:
        norm_scale: [C].
        norm_offset: [C].
        widen: [C, W] or [C, 2 W].
        widen_bias: [W] or [2 W].
        narrow: [W, C].
        narrow_bias: [C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    widen: torch.Tensor
    widen_bias: torch.Tensor
    narrow: torch.Tensor
    narrow_bias: torch.Tensor

    @property
    def is_gated(self) -> bool:
        """Return True if the hidden layer is silu(a) b."""
        return self.widen.shape[1] == 2 * self.narrow.shape[0]


def join_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the widening matrix [C, 2 W] of a gated layer from those of a and b, [C, W].

    Raises:
        RuntimeError: W is not a multiple of GATE_BLOCK.
    """
    return torch.stack([x.unflatten(1, (-1, GATE_BLOCK)) for x in (a, b)], 2).flatten(1)


def transition(x: torch.Tensor, weights: TransitionWeights, *, add: bool = False) -> torch.Tensor:
    """Compute the update W₂ relu(W₁ LN(x) + b₁) + b₂ of every position, or add it to x [..., C] in place."""
    flat = x.reshape(-1, x.shape[-1])  # [R, C]
    result = torch.empty_like(flat)
    for rows in row_slices(flat, sum(weights.widen.shape)):
        normed = layer_norm(flat[rows], weights.norm_scale, weights.norm_offset)  # [r, C]
        wide = torch.addmm(weights.widen_bias, normed, weights.widen)
        if weights.is_gated:
            a, b = wide.unflatten(1, (-1, 2, GATE_BLOCK)).unbind(2)
            wide = F.silu(a).mul_(b).flatten(1)
        else:
            wide.relu_()  # [r, W]
        torch.addmm(weights.narrow_bias, wide, weights.narrow, out=result[rows])
    return x.add_(result.view(x.shape)) if add else result.view(x.shape)
