"""Tests of the guard that skips steps with gradients that are not finite or spikes."""

import math

import pytest

from model.errors import TrainingDiverged
from model.training.runtime.settings import OptimizerSettings, Phase
from model.training.runtime.step import MIN_NORMS, GradientGuard

OPTIONS = OptimizerSettings(spike_factor=3.0, max_skipped=2)


@pytest.mark.parametrize("norm", [math.nan, math.inf, -math.inf])
def test_gradients_that_are_not_finite_are_skipped_until_too_many(norm: float) -> None:
    guard = GradientGuard(OPTIONS)
    # another gradient in between starts the count again
    for step in range(6):
        assert guard.skips(1.0 if step % 3 == 2 else norm, step, None) == (step % 3 != 2)
    assert guard.skips(norm, 6, None) and guard.skips(norm, 7, None)
    with pytest.raises(TrainingDiverged, match=r"3 steps in a row .* at step 8.*lower learning_rate or"):
        guard.skips(norm, 8, None)


def test_a_spike_exceeds_the_median_of_enough_norms_of_its_phase() -> None:
    guard, phase, other = GradientGuard(OPTIONS), Phase(steps=1, crop=8), Phase(steps=1, crop=16)
    for step in range(MIN_NORMS - 1):
        assert not guard.skips(1.0, step, phase)
    # one norm too few for a median
    assert not guard.skips(100.0, MIN_NORMS, phase)
    assert not guard.skips(3.0, MIN_NORMS, phase)
    assert guard.skips(3.1, MIN_NORMS, phase)
    assert not guard.skips(100.0, MIN_NORMS, other)


def test_a_run_of_spikes_names_the_factor() -> None:
    guard = GradientGuard(OPTIONS, [1.0] * MIN_NORMS, skipped=2)
    with pytest.raises(TrainingDiverged, match="lower learning_rate, raise spike_factor, or continue from"):
        guard.skips(4.0, 8, None)


def test_an_infinite_factor_skips_no_finite_gradient() -> None:
    guard = GradientGuard(OptimizerSettings(spike_factor=math.inf))
    assert not any(guard.skips(0.0, step, None) for step in range(MIN_NORMS))
    assert not guard.skips(1.0, MIN_NORMS, None)
