"""The smooth lDDT of noised copies of a structure, with gradients (Algorithm 27).

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

import torch

from cuda.fused.dispatch import check_shapes, implementation_module

__all__ = ["smooth_lddt"]


def smooth_lddt(
    denoised: torch.Tensor, positions: torch.Tensor, radius: torch.Tensor, *, implementation: str = "auto"
) -> torch.Tensor:
    """Compute the mean score [S] of the pairs of atoms i ≠ j that are within the radius of i.

    Only the copies [S, A, 3], Å, get a gradient; the kernel takes float32. They are compared with positions
    [A, 3], Å. The radius [A], Å, is 0 for atoms that have no pairs.

    Raises:
        ValueError: shapes disagree, or the implementation does not support these tensors.
    """
    check_shapes(
        "smooth_lddt",
        {"denoised": (denoised, "S A 3"), "positions": (positions, "A 3"), "radius": (radius, "A")},
    )
    module = implementation_module("smooth_lddt", implementation, denoised.device)
    result: torch.Tensor = module.smooth_lddt(denoised, positions, radius)
    return result
