"""Rigid alignment of two structures with weights (Algorithm 28).

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

import torch

from model.layers.rigid import Rigid


@torch.no_grad()
def alignment(mobile: torch.Tensor, target: torch.Tensor, weights: torch.Tensor) -> Rigid:
    """Find the proper rigid transformations of points that bring them closest to others.

    Points are [..., P, 3], weights [..., P], not negative; they are broadcast. The transformations, of the
    leading axes, minimise Σ w |R mobile + t − target|²; without a positive weight the rotation is arbitrary.
    """
    mobile, target, weights = torch.broadcast_tensors(mobile, target, weights[..., None])
    total = weights.sum(dim=-2, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    mobile_centre, target_centre = ((weights * x).sum(dim=-2, keepdim=True) / total for x in (mobile, target))
    covariance = (weights * (target - target_centre)).transpose(-1, -2) @ (mobile - mobile_centre)
    # a network that diverged makes the translation, and so the losses, not finite instead of an error here
    left, _, right = torch.linalg.svd(covariance.nan_to_num(0.0, 0.0, 0.0))
    # the last axis is reversed where the closest orthogonal matrix is a reflection
    proper = torch.ones_like(covariance[..., 0])
    proper[..., -1] = torch.where(torch.linalg.det(left @ right) < 0, -1.0, 1.0)
    rotation = (left * proper[..., None, :]) @ right
    translation = target_centre - mobile_centre @ rotation.transpose(-1, -2)
    return Rigid(rotation, translation[..., 0, :])


def align(mobile: torch.Tensor, target: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return mobile points [..., P, 3] aligned to target ones; see `alignment`."""
    transformation = alignment(mobile, target, weights)
    return mobile @ transformation.rotation.transpose(-1, -2) + transformation.translation[..., None, :]
