"""Global column attention of the extra MSA stack (Algorithm 19).

The algorithm number is that of the supplement of Jumper et al., Nature 596, 583 (2021).
"""

from types import ModuleType

import torch

from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.dispatch import check_shapes, resolve_implementation
from cuda.fused.global_attention import reference

__all__ = ["global_attention", "resolve"]

WEIGHT_AXES = ("C", "C", "C H D", "C D", "C D", "C H D", "H D", "H D O", "O")


def global_attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor,
    budget: int | None = None,
    *,
    implementation: str = "auto",
) -> torch.Tensor:
    """Compute gated attention of LN(x) with one averaged query per row, and one key and value head.

    Args:
        x: [B, L, C], B rows of L positions; the kernels take at most 256 channels.
        weights: the layer's parameters; key and value are [C, D].
        mask: [B, L], 1 for keys that may be attended to.
        budget: maximum number of elements held in memory at once. Does not affect the result.
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [B, L, O], the update.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("global_attention", {"x": (x, "B L C"), "mask": (mask, "B L")}, weights, WEIGHT_AXES)
    result: torch.Tensor = resolve(implementation, x.device).global_attention(x, weights, mask, budget)
    return result


def resolve(implementation: str = "auto", device: torch.device | str = "cpu") -> ModuleType:
    """Return the module that implements the operation: `global_attention` without checks of shapes.

    Args:
        implementation: see `cuda.fused.dispatch.resolve_implementation`. Hopper GPUs have no kernel of their
            own: "hopper" is the Triton kernels.
        device: where the operation runs.
    """
    if resolve_implementation(implementation, device) == "reference":
        return reference
    # deferred: Triton is optional
    from cuda.fused.global_attention import triton

    return triton
