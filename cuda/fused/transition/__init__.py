"""The two-layer transition of the MSA and pair representations (Algorithms 9 and 15).

Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module
from cuda.fused.transition.reference import TransitionWeights, join_gate

__all__ = ["TransitionWeights", "add_transition", "join_gate"]

# by whether the layer is gated; V is 2 W
WEIGHT_AXES = {False: ("C", "C", "C W", "W", "W C", "C"), True: ("C", "C", "C V", "V", "W C", "C")}


def add_transition(
    x: torch.Tensor, weights: TransitionWeights, *, implementation: str = "auto"
) -> torch.Tensor:
    """Add the update W₂ relu(W₁ LN(x) + b₁) + b₂ of every position to x [..., C] in place, and return x.

    The kernels take at most 256 channels.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("transition", {"x": (x, "... C")}, weights, WEIGHT_AXES[weights.is_gated])
    module = implementation_module("transition", implementation, x.device)
    result: torch.Tensor = module.transition(x, weights, add=True)
    return result
