"""Posterior probabilities of aligned pairs, against an enumeration of all local alignments."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from features.templates.posterior import expected_correct_pairs
from msa.alphabet import encode
from msa.profile.pssm import query_profile

LAMBDA, OPEN, EXTEND = 0.3176, 5, 1


def all_paths(length: int, targets: int) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
    """Yield the pairs and the gap costs of every local alignment, which starts and ends with a pair."""
    for count in range(1, min(length, targets) + 1):
        for rows in itertools.combinations(range(length), count):
            for columns in itertools.combinations(range(targets), count):
                cost = 0
                for positions in (rows, columns):
                    for first, second in itertools.pairwise(positions):
                        gap = second - first - 1
                        cost += OPEN + EXTEND * (gap - 1) if gap else 0
                yield tuple(zip(rows, columns, strict=True)), cost


def enumerated(profile: np.ndarray, codes: np.ndarray, pairs: np.ndarray) -> float:
    total, correct = 1.0, 0.0
    wanted = {tuple(pair) for pair in pairs.tolist()}
    for path, cost in all_paths(len(profile), len(codes)):
        weight = math.exp(LAMBDA * (sum(int(profile[i, codes[j]]) for i, j in path) - cost))
        total += weight
        correct += weight * sum(pair in wanted for pair in path)
    return correct / total


@pytest.mark.parametrize(
    ("query", "target", "pairs"),
    [
        ("WWCW", "WWCW", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("ACDEF", "ACEF", [(0, 0), (1, 1), (3, 2), (4, 3)]),
        ("ACEF", "ACDDEF", [(0, 0), (1, 1), (2, 4), (3, 5)]),
        ("GWPKH", "HKWPG", [(1, 2), (2, 3)]),
        ("MKV", "RLI", [(0, 1)]),
    ],
)
def test_equals_the_enumeration_of_all_alignments(
    query: str, target: str, pairs: list[tuple[int, int]]
) -> None:
    profile, codes = query_profile(encode(query), comp_bias_corr=False), encode(target)
    aligned = np.array(pairs)
    (result,) = expected_correct_pairs(profile, [codes], [aligned], OPEN, EXTEND, LAMBDA)
    assert result == pytest.approx(enumerated(profile, codes, aligned), rel=1e-9)


def test_long_identical_sequences_do_not_overflow() -> None:
    codes = np.tile(np.arange(20, dtype=np.uint8), 120)
    profile = query_profile(codes, comp_bias_corr=False)
    pairs = np.repeat(np.arange(len(codes))[:, None], 2, axis=1)
    (result,) = expected_correct_pairs(profile, [codes], [pairs], 11, 1, LAMBDA)
    assert 0.99 * len(codes) < result <= len(codes)


def test_unrelated_sequences_have_no_correct_pairs() -> None:
    rng = np.random.default_rng(0)
    query, target = (rng.integers(0, 20, 200).astype(np.uint8) for _ in range(2))
    pairs = np.repeat(np.arange(20, 40)[:, None], 2, axis=1)
    (result,) = expected_correct_pairs(query_profile(query), [target], [pairs], 11, 1, LAMBDA)
    assert result < 0.1
