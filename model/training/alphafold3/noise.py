"""Noised copies of an experimental structure, and the random numbers of a training pass."""

from typing import NamedTuple

import torch

from model.alphafold3.sampling import SeededDraws, StepDraws, augment
from model.training.alphafold3.targets import AtomTargets

# mean and standard deviation of the logarithm of noise levels in units of the positions' deviation
LOG_MEAN, LOG_DEVIATION = -1.2, 1.5


class CopyDraws(NamedTuple):
    """Random numbers of noised copies, normally distributed with variance 1. S is the number of copies.

    Args:
        level: [S].
        motion: rotation, translation and noise of each copy.
    """

    level: torch.Tensor
    motion: StepDraws


class SeededTrainingDraws(SeededDraws):
    """The random numbers of a training pass but for dropout, on the CPU; they depend only on the seed."""

    _CYCLES, _COPY = 3, 4

    def cycles(self, most: int) -> int:
        """Return a number of cycles from 1 to `most`, each equally often."""
        return int(self._generator(self._CYCLES).integers(1, most, endpoint=True))

    def copies(self, count: int, atoms: int) -> CopyDraws:
        """Return the random numbers of noised copies; a copy does not depend on the number of copies."""
        generators = [self._generator(self._COPY, copy) for copy in range(count)]
        shapes = ((), (4,), (3,), (atoms, 3))
        level, *motion = (
            torch.stack([torch.as_tensor(g.standard_normal(shape, "f4")) for g in generators])
            for shape in shapes
        )
        return CopyDraws(level, StepDraws(*motion))


def noised_copies(
    targets: AtomTargets, draws: CopyDraws, sigma_data: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of a structure [S, A, 3], Å, moved and noised at random, and their noise levels [S], Å.

    Positions are 0 for atoms that are not resolved. `sigma_data` is the standard deviation of positions, Å.
    """
    positions, resolved = targets.positions, targets.resolved
    level, motion = draws.level.to(positions), StepDraws(*(x.to(positions) for x in draws.motion))
    sigmas = sigma_data * torch.exp(LOG_MEAN + LOG_DEVIATION * level)
    moved = augment(positions.expand(len(sigmas), *positions.shape), resolved, motion)
    return (moved + sigmas[:, None, None] * motion.noise) * resolved[:, None], sigmas
