"""The sampler, from noise to atom positions in some denoising steps (Algorithm 18), and its random draws.

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from model.alphafold3.config import DiffusionConfig
from model.layers.rigid import rotation_from_quaternion

# steps whose random numbers are drawn before they are needed
_STEPS_AHEAD = 4
_Step: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class StepDraws(NamedTuple):
    """Random numbers of one step, normally distributed with variance 1.

    Args:
        quaternion: [S, 4], not normalised, real part first.
        translation: [S, 3], Å.
        noise: [S, A, 3].
    """

    quaternion: torch.Tensor
    translation: torch.Tensor
    noise: torch.Tensor


class SeededDraws:
    """The random numbers of a prediction, on the CPU; they depend only on the seed, below 2⁶⁴.

    All random choices go through these methods, so that tests can substitute those of another program.

    Each cycle, and each step of each sample, has a generator of its own, so that a sample does not depend on
    the number of samples; `first_sample` is the number of the first one.

    Raises:
        ValueError: the seed is out of range.
    """

    _ROWS, _INITIAL, _STEP = range(3)

    def __init__(self, seed: int, first_sample: int = 0) -> None:
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be between 0 and 2^64 - 1, got {seed}")
        self._seed, self._first_sample = seed, first_sample

    def from_sample(self, first: int) -> "SeededDraws":
        """Return the random numbers of the samples from a number on."""
        return SeededDraws(self._seed, self._first_sample + first)

    def _generator(self, kind: int, *indices: int) -> np.random.Generator:
        entropy = np.random.SeedSequence(self._seed, spawn_key=(kind, *indices))
        return np.random.Generator(np.random.Philox(entropy))

    def rows(self, cycle: int, count: int) -> torch.Tensor:
        """Return a permutation of alignment rows for one cycle, int64 [count]."""
        return torch.from_numpy(self._generator(self._ROWS, cycle).permutation(count))

    def initial(self, samples: int, atoms: int) -> torch.Tensor:
        """Return the initial positions, [S, A, 3], normally distributed with variance 1."""
        return torch.stack(
            [
                _normal(self._generator(self._INITIAL, self._first_sample + sample), atoms, 3)
                for sample in range(samples)
            ]
        )

    def step(self, index: int, samples: int, atoms: int) -> StepDraws:
        """Return the random numbers of one step; a thread calls this for one step after the other."""
        generators = [
            self._generator(self._STEP, self._first_sample + sample, index) for sample in range(samples)
        ]
        drawn = np.empty((samples, 7 + 3 * atoms), np.float32)
        for generator, row in zip(generators, drawn, strict=True):
            for part in (row[:4], row[4:7], row[7:]):
                generator.standard_normal(dtype=np.float32, out=part)
        return _parts(torch.from_numpy(drawn))


def _parts(drawn: torch.Tensor) -> StepDraws:
    """Return the random numbers of a step in one tensor [S, 4 + 3 + 3 A] as its parts."""
    quaternion, translation, noise = drawn.split((4, 3, drawn.shape[1] - 7), dim=1)
    return StepDraws(quaternion, translation, noise.unflatten(1, (-1, 3)))


def _normal(generator: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(generator.standard_normal(shape, np.float32))


def noise_schedule(config: DiffusionConfig, steps: int) -> torch.Tensor:
    """Return the noise levels of a trajectory, Å, float32 [steps + 1] (equation 7)."""
    time = torch.arange(steps + 1, dtype=torch.float32) / steps
    power = 1 / config.noise_exponent
    first, last = config.largest_noise**power, config.smallest_noise**power
    return config.sigma_data * (first + time * (last - first)) ** config.noise_exponent


def augment(positions: torch.Tensor, mask: torch.Tensor, draws: StepDraws) -> torch.Tensor:
    """Centre positions [S, A, 3], rotate and translate them at random (Algorithm 19); mask is [A]."""
    weights = mask[:, None]
    centre = (positions * weights).sum(dim=-2, keepdim=True) / weights.sum().clamp(min=1)
    norm = torch.linalg.vector_norm(draws.quaternion, dim=-1, keepdim=True)
    rotation = rotation_from_quaternion(draws.quaternion / norm)
    moved = (positions - centre) @ rotation.transpose(-1, -2) + draws.translation[:, None]
    return moved * weights


def upload(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Copy a tensor from the CPU without waiting for the work that a GPU still has to do."""
    return (tensor.pin_memory() if like.is_cuda else tensor).to(like, non_blocking=True)


def sample_positions(
    denoise: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    mask: torch.Tensor,
    draws: SeededDraws,
    config: DiffusionConfig,
    *,
    samples: int,
    steps: int,
    progress: Callable[[int], None] | None = None,
    graphed: Callable[[_Step], _Step] | None = None,
) -> torch.Tensor:
    """Draw atom positions [S, A, 3], Å (Algorithm 18).

    `denoise` maps noisy positions [S, A, 3] and the noise level, a scalar, to denoised positions; Å. The mask
    [A] is 1 for real atoms; its device and dtype are those of the result. `progress` is called after each
    step with the number of steps done. `graphed` makes a function of tensors one that replays a graph; its
    result may be overwritten by the next call.
    """
    atoms = len(mask)
    schedule = noise_schedule(config, steps)
    raised = schedule[:-1] * (1 + config.added_noise * (schedule[1:] > config.added_noise_above))
    added = config.noise_scale * torch.sqrt(raised**2 - schedule[:-1] ** 2)
    # copied before the first step, so that no step waits for a GPU
    levels = torch.stack([raised, added, config.step_scale * (schedule[1:] - raised)], dim=1).to(mask)

    def step(positions: torch.Tensor, drawn: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        step_draws = _parts(drawn)
        noisy = augment(positions, mask, step_draws) + level[1] * step_draws.noise
        direction = (noisy - denoise(noisy, level[0])) / level[0]
        return noisy + level[2] * direction

    run = step if graphed is None else graphed(step)
    positions = (schedule[0] * draws.initial(samples, atoms)).to(mask)

    def draw(index: int) -> torch.Tensor:
        # by numpy, as the threads of torch's copies would delay the one that launches kernels
        step_draws = draws.step(index, samples, atoms)
        dtype, is_pinned = step_draws.noise.dtype, mask.is_cuda
        drawn = torch.empty(samples, 7 + 3 * atoms, dtype=dtype, pin_memory=is_pinned)
        np.concatenate([x.flatten(1).numpy() for x in step_draws], axis=1, out=drawn.numpy())
        return drawn

    with ThreadPoolExecutor(1) as pool:  # a thread draws while this one launches kernels
        drawn = [pool.submit(draw, index) for index in range(min(steps, _STEPS_AHEAD))]
        for index in range(steps):
            positions = run(positions, drawn.pop(0).result().to(mask, non_blocking=True), levels[index])
            if index + _STEPS_AHEAD < steps:
                drawn.append(pool.submit(draw, index + _STEPS_AHEAD))
            if progress is not None:
                progress(index + 1)
    return positions if graphed is None else positions.clone()
