"""Tests of the sampler and of its random draws."""

import pytest
import torch

from model.alphafold3.config import OPENBIND
from model.alphafold3.sampling import SeededDraws, StepDraws, augment, noise_schedule, sample_positions

CONFIG = OPENBIND.diffusion


def test_draws_depend_on_the_seed_alone() -> None:
    first, again, other = SeededDraws(7), SeededDraws(7), SeededDraws(8)
    assert torch.equal(first.initial(2, 5), again.initial(2, 5))
    assert not torch.equal(first.initial(2, 5), other.initial(2, 5))
    assert torch.equal(first.rows(3, 20), again.rows(3, 20))
    assert not torch.equal(first.rows(3, 20), first.rows(4, 20))
    assert sorted(first.rows(0, 20).tolist()) == list(range(20))
    for ours, theirs in zip(first.step(4, 2, 5), again.step(4, 2, 5), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(first.step(4, 2, 5).noise, first.step(5, 2, 5).noise)


def test_draws_are_these() -> None:
    # results of released versions must not change
    draws = SeededDraws(42)
    assert draws.rows(0, 6).tolist() == [1, 2, 3, 0, 4, 5]
    assert torch.allclose(
        draws.initial(1, 1)[0, 0], torch.tensor([-0.6736546, 0.4745688, 0.5382702]), atol=1e-6
    )
    assert torch.allclose(
        draws.step(0, 1, 1).quaternion[0],
        torch.tensor([-0.1325597, 0.1124721, 2.0234063, -0.4177102]),
        atol=1e-6,
    )


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be between"):
        SeededDraws(seed)


def test_a_sample_does_not_depend_on_the_others() -> None:
    mask = torch.ones(6)

    def denoise(noisy: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        return noisy / (1 + sigma)

    def run(draws: SeededDraws, samples: int) -> torch.Tensor:
        return sample_positions(denoise, mask, draws, CONFIG, samples=samples, steps=5)

    together = run(SeededDraws(3), 3)
    assert torch.equal(run(SeededDraws(3), 3), together)
    assert torch.allclose(run(SeededDraws(3), 1)[0], together[0], atol=1e-5)
    assert torch.allclose(run(SeededDraws(3, first_sample=2), 1)[0], together[2], atol=1e-5)


def test_schedule_falls_from_2560_to_0_0064() -> None:
    schedule = noise_schedule(CONFIG, 200)
    assert schedule.shape == (201,)
    assert torch.allclose(schedule[[0, -1]], torch.tensor([2560.0, 0.0064]), rtol=1e-4)
    assert bool((schedule.diff() < 0).all())


def test_noise_is_added_only_before_steps_to_levels_above_1() -> None:
    levels: list[float] = []

    def denoise(noisy: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        levels.append(float(sigma))
        return torch.zeros_like(noisy)

    done: list[int] = []
    sample_positions(
        denoise, torch.ones(2), SeededDraws(0), CONFIG, samples=1, steps=10, progress=done.append
    )
    schedule = noise_schedule(CONFIG, 10)
    raised = [1.8 if level > 1 else 1.0 for level in schedule[1:]]
    assert levels == pytest.approx([r * float(x) for r, x in zip(raised, schedule, strict=False)])
    assert 1.8 in raised and 1.0 in raised
    assert done == list(range(1, 11))


def test_augmentation_centres_real_atoms_and_keeps_distances() -> None:
    torch.manual_seed(0)
    positions, mask = torch.randn(2, 5, 3), torch.tensor([1.0, 1, 1, 1, 0])
    moved = augment(positions, mask, StepDraws(torch.randn(2, 4), torch.zeros(2, 3), torch.zeros(2, 5, 3)))
    assert torch.allclose(moved[:, :4].mean(dim=1), torch.zeros(2, 3), atol=1e-6)
    assert bool((moved[:, 4] == 0).all())
    before, after = (torch.cdist(x[:, :4], x[:, :4]) for x in (positions, moved))
    assert torch.allclose(before, after, atol=1e-5)
    # a rotation, not a reflection
    volume = [torch.linalg.det(x[:, 1:4] - x[:, :1]) for x in (positions, moved)]
    assert torch.allclose(*volume, atol=1e-5)
