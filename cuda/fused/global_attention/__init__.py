"""Global column attention of the extra MSA stack (Algorithm 19).

The algorithm number is that of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

import torch

from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["global_attention"]

WEIGHT_AXES = ("C", "C", "C H D", "C D", "C D", "C H D", "H D", "H D O", "O")


def global_attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated attention of LN(x) with one averaged query per row, and one key and value head.

    Args:
        x: [B, L, C], B rows of L positions; the kernels take at most 256 channels.
        weights: the layer's parameters; key and value are [C, D].
        mask: [B, L], 1 for keys that may be attended to.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [B, L, O], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("global_attention", {"x": (x, "B L C"), "mask": (mask, "B L")}, weights, WEIGHT_AXES)
    result: torch.Tensor = implementation_module(
        "global_attention", implementation, x.device
    ).global_attention(x, weights, mask)
    return result
