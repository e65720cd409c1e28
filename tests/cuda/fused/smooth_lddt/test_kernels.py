"""Smooth lDDT: scores and gradients against float64, atoms without pairs, unsupported input."""

import pytest
import torch

from cuda.fused.smooth_lddt import smooth_lddt
from tests.cuda.fused.environment import DEVICE
from tests.cuda.fused.gradients import compare_gradients


def structure(atoms: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return three copies, the structure, and radii of both kinds; some atoms are not known."""
    generator = torch.Generator().manual_seed(seed)
    positions = 12 * torch.randn(atoms, 3, generator=generator)
    errors = torch.tensor([0.3, 2.0, 20.0])[:, None, None] * torch.randn(3, atoms, 3, generator=generator)
    kinds = torch.randint(0, 3, (atoms,), generator=generator)
    radius = torch.tensor([15.0, 30.0, 0.0])[kinds]
    return (positions + errors).to(DEVICE), positions.to(DEVICE), radius.to(DEVICE)


@pytest.mark.parametrize("atoms", [1, 2, 31, 64, 65, 211])
def test_gradients_match_float64(atoms: int, compare: object) -> None:
    denoised, positions, radius = structure(atoms, atoms)

    def scores(implementation: str):  # type: ignore[no-untyped-def]
        return lambda x: smooth_lddt(x, positions.to(x), radius.to(x), implementation=implementation)

    compare_gradients(compare, scores("triton"), scores("reference"), [denoised])  # type: ignore[arg-type]


def test_other_types_are_rejected() -> None:
    denoised, positions, radius = (x.half() for x in structure(3, 0))
    with pytest.raises(ValueError, match="float16"):
        smooth_lddt(denoised, positions, radius, implementation="triton")
