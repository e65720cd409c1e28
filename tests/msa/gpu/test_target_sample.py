"""Random samples of targets, and predictions from them."""

import math

import numpy as np
import pytest

from msa.gpu import target_sample
from msa.gpu.target_sample import SHARE, draw_sample, predicting_rank


def tail_probability(trials: int, probability: float, least: int) -> float:
    """Return the probability of at least `least` successes."""

    def logarithm(successes: int) -> float:
        failures = trials - successes
        choices = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(failures + 1)
        return choices + successes * math.log(probability) + failures * math.log1p(-probability)

    return sum(math.exp(logarithm(successes)) for successes in range(least, trials + 1))


@pytest.mark.parametrize("max_targets", [100, 1000, 10_000, 100_000])
def test_predictions_are_rarely_too_high(max_targets: int) -> None:
    rank = predicting_rank(max_targets)
    # too high if more of the best targets are in the sample
    assert tail_probability(max_targets, SHARE, rank) < 3e-6
    assert tail_probability(max_targets, SHARE, int(0.7 * rank)) > 1e-6


def test_sample_is_random_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5, 100_005
    sampled = draw_sample(part)
    assert (sampled == draw_sample(part)).all()
    assert sampled[0] >= 5 and sampled[-1] < 100_005 and (np.diff(sampled) > 0).all()
    # any thousand neighbours contain about as many
    counts = np.histogram(sampled, 100, part)[0]
    assert abs(len(sampled) - 100_000 * SHARE) < 300 and counts.min() > 10 and counts.max() < 60
    monkeypatch.setattr(target_sample, "_MAX_TARGETS", 99_999)
    assert len(draw_sample(part)) == 0
