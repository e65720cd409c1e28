"""Tests of the gapless filter's limit for targets of each length."""

import math

import numpy as np
import pytest

from msa.profile.gumbel import GUMBEL_TABLES
from msa.search.gapless_limit import longest_filtered

ANY_LENGTH = 2**31 - 1


def chance_targets(query_length: int, target_length: int, targets: int, score: int, matrix: str) -> float:
    """Return the expected number of targets of a length that reach a score by chance."""
    exponent = GUMBEL_TABLES[matrix].ungapped_lambda * score
    return 0.134 * query_length * target_length * targets * math.exp(-exponent)


@pytest.mark.parametrize("matrix", ["CONTEXT", "BLOSUM45"])
@pytest.mark.parametrize(
    ("query_length", "of_family", "allowed"),
    [(60, False, 4000), (160, False, 4000), (400, False, 10_000), (60, True, 6000), (400, True, 15_000)],
)
def test_longest_target_is_reached_by_this_many_by_chance(
    query_length: int, of_family: bool, allowed: int, matrix: str
) -> None:
    longest = longest_filtered(query_length, 10**6, matrix, of_family)
    for score in (40, 60, 80):
        length = int(longest[score])
        assert length >= 1
        assert chance_targets(query_length, length, 10**6, score, matrix) <= allowed
        assert chance_targets(query_length, length + 1, 10**6, score, matrix) > allowed


def test_limit_grows_with_the_score_up_to_any_length() -> None:
    longest = longest_filtered(100, 10**8, "CONTEXT", False)
    assert longest.dtype == np.int32
    assert longest[0] == 0 and longest[-1] == ANY_LENGTH
    assert (np.diff(longest.astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("targets", [0, 1, 100])
def test_few_targets_pass_with_any_length_of_a_protein(targets: int) -> None:
    assert (longest_filtered(300, targets, "CONTEXT", False)[15:] > 100).all()
