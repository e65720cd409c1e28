"""A gated residual connection, and the conditioned LayerNorm of its sum (Algorithms 24 to 26).

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from typing import NamedTuple

import torch

from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["GatedUpdate", "add_gated", "residual_norm"]


class GatedUpdate(NamedTuple):
    """An update of a residual stream x [S, N, C].

    Args:
        update: [S, N, C], float32.
        gate: [N, C], shared by the samples.
        mask: [N], 1 for positions that are updated, or None for all.
        logits: whether the gate is the sigmoid of the given one.
    """

    update: torch.Tensor
    gate: torch.Tensor
    mask: torch.Tensor | None = None
    logits: bool = False


def residual_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    update: GatedUpdate | None = None,
    *,
    dtype: torch.dtype,
    logits: bool = False,
    implementation: str = "auto",
) -> torch.Tensor:
    """Add a gated update to x in place, if there is one; return x's conditioned LayerNorm in a dtype.

    x is float32 [S, N, C], contiguous, of at most 1024 channels for the kernel. The normalised x (epsilon
    1e-5) is multiplied by scale, or its sigmoid if `logits` is True, and shift is added: [N, C], with the
    same strides, in which rows may have any.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    _check(x, update, {"scale": (scale, "N C"), "shift": (shift, "N C")})
    module = implementation_module("residual_norm", implementation, x.device)
    result: torch.Tensor = module.residual_norm(x, scale, shift, update, dtype, logits)
    return result


def add_gated(x: torch.Tensor, update: GatedUpdate, *, implementation: str = "auto") -> torch.Tensor:
    """Add a gated update to x [S, N, C], float32, contiguous, in place; return x.

    Raises:
        ValueError: see `residual_norm`.
    """
    _check(x, update, {})
    module = implementation_module("residual_norm", implementation, x.device)
    result: torch.Tensor = module.add_gated(x, update)
    return result


def _check(
    x: torch.Tensor, update: GatedUpdate | None, more: dict[str, tuple[torch.Tensor | None, str]]
) -> None:
    tensors = {"x": (x, "S N C")} | more
    if update is not None:
        tensors |= {"update": (update.update, "S N C"), "gate": (update.gate, "N C")}
        tensors |= {"mask": (update.mask, "N")}
    check_shapes("residual_norm", tensors)
