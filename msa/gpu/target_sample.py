"""A random sample of a streamed database's targets, which predicts the score that its best targets reach.

Without it, a pass over the database would compute exact scores of many targets of the first chunks that are
not among the best of the whole database.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences

SHARE = 1 / 32
"""Probability with which each target is in the sample."""

_MAX_TARGETS = 2**22
"""Maximum number of targets from which a sample is drawn. Among more targets, the best ones are so few that
their scores take little time, and a sample would have to be read from many distant pages of the files."""

_SEED = 20261126

_STANDARD_DEVIATIONS = 5
"""A prediction is too high for one query in a million; its best targets then have to be found without it."""


@dataclass(frozen=True)
class TargetSample:
    """Random targets on the GPU.

    Args:
        sequences: the targets, in the order of the database.
        ready: event that is recorded when the copy is complete.
    """

    sequences: DeviceSequences
    ready: Any

    def __len__(self) -> int:
        return int(self.sequences.lengths.size)


def draw_sample(part: tuple[int, int]) -> np.ndarray:
    """Draw a sample, the same at each call.

    Args:
        part: first target and end.

    Returns:
        Ascending indices of targets, int64 [n]; none if there are too many targets.
    """
    first, end = part
    if end - first > _MAX_TARGETS:
        return np.empty(0, np.int64)
    return first + np.flatnonzero(np.random.default_rng(_SEED).random(end - first) < SHARE)


def predicting_rank(max_targets: int) -> int:
    """Return the rank of the sampled target whose score all of the best `max_targets` targets should reach.

    The number of sampled targets among these has a binomial distribution, however similar the targets are.
    The rank is higher than its mean by several standard deviations.
    """
    mean = SHARE * max_targets
    return math.ceil(mean + _STANDARD_DEVIATIONS * (math.sqrt(mean) + 1))
