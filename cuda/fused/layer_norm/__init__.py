"""Layer normalisation over the last axis."""

from types import ModuleType

import torch

from cuda.fused.dispatch import check_shapes, resolve_implementation
from cuda.fused.layer_norm import reference

__all__ = ["layer_norm", "resolve"]


def layer_norm(
    x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, *, implementation: str = "auto"
) -> torch.Tensor:
    """Normalise the last axis to mean 0 and variance 1 (biased, epsilon 1e-5), then scale and shift.

    Args:
        x: [..., C]; the kernel takes at most 1024 channels.
        scale: [C].
        offset: [C].
        implementation: see `cuda.fused.dispatch.resolve_implementation`.

    Returns:
        [..., C], of x's dtype.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes("layer_norm", {"x": (x, "... C"), "scale": (scale, "C"), "offset": (offset, "C")})
    result: torch.Tensor = resolve(implementation, x.device).layer_norm(x, scale, offset)
    return result


def resolve(implementation: str = "auto", device: torch.device | str = "cpu") -> ModuleType:
    """Return the module that implements the operation: `layer_norm` without checks of shapes.

    Args:
        implementation: see `cuda.fused.dispatch.resolve_implementation`. Hopper GPUs need no kernel of their
            own: "hopper" is the Triton kernel.
        device: where the operation runs.
    """
    if resolve_implementation(implementation, device) == "reference":
        return reference
    # deferred: Triton is optional
    from cuda.fused.layer_norm import triton

    return triton
