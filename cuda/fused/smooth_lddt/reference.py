"""The smooth lDDT in plain PyTorch."""

import torch
from torch.utils.checkpoint import checkpoint

LIMITS = (0.5, 1.0, 2.0, 4.0)
EPSILON = 1e-8


def smooth_lddt(denoised: torch.Tensor, positions: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    """Compute the mean scores; a backward pass computes the distances of a copy again."""
    known = radius > 0
    near = _length(positions[:, None] - positions) < radius[:, None]
    near &= known[:, None] & known
    first, second = near.fill_diagonal_(False).nonzero(as_tuple=True)
    true = _length(positions[first] - positions[second])

    def total(copy: torch.Tensor) -> torch.Tensor:
        error = (_length(copy[first] - copy[second]) - true).abs()
        return torch.stack([torch.sigmoid(limit - error) for limit in LIMITS]).mean(dim=0).sum()

    totals = [checkpoint(total, copy, use_reentrant=False) for copy in denoised]
    return torch.stack(totals) / (len(first) + smallest_count(radius))


def smallest_count(radius: torch.Tensor) -> torch.Tensor:
    """Return what is added to the number of pairs: OpenFold3 adds 1e-8 to its share of all pairs."""
    count = (radius > 0).sum()
    return EPSILON * (count * (count - 1) + EPSILON)


def _length(offsets: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(EPSILON + offsets.square().sum(dim=-1))
