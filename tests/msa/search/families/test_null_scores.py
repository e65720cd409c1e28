"""Tests of the calibration of family profiles against shuffled targets."""

import math
from dataclasses import replace

import numpy as np
import pytest

from msa.alphabet import MASK_BIT, STANDARD, encode
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SAMPLE_SIZE, SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.profile.family_profile import family_profile
from msa.profile.gumbel import gumbel_parameters
from msa.profile.matrices import background
from msa.profile.pssm import query_profile
from msa.profile.statistics import corrected_scores, evalues
from msa.search.families.null_scores import ShuffledTargets

SETTINGS = SearchSettings(matrix="BLOSUM62", gap_open=10)
PARAMETERS = gumbel_parameters(10, 1)


def random_targets(frequencies: np.ndarray, count: int = 600) -> SequenceArrays:
    """Create random targets, sorted by length."""
    rng = np.random.default_rng(1)
    lengths = np.sort(rng.integers(60, 500, count)).astype(np.int32)
    residues = rng.choice(20, int(lengths.sum()), p=frequencies).astype(np.uint8)
    return SequenceArrays.contiguous(residues, lengths)


def sample(targets: SequenceArrays) -> SequenceArrays:
    return targets.sample_by_length(len(targets))


def standard_frequencies() -> np.ndarray:
    return background()[:20]


def random_profile(frequencies: np.ndarray, seed: int = 2) -> np.ndarray:
    """Create the profile of a random family; its members share half of their residues."""
    rng = np.random.default_rng(seed)
    query = rng.choice(20, 150, p=frequencies)
    kept = rng.random(150) < 0.5
    rows = [np.where(kept, query, rng.choice(20, 150, p=frequencies)) for _ in range(10)]
    return family_profile(np.stack([query, *rows]).astype(np.uint8))


def test_k_factor_is_near_one_for_standard_frequencies() -> None:
    shuffled = ShuffledTargets(sample(random_targets(standard_frequencies())))
    factors = [
        shuffled.k_factor(random_profile(standard_frequencies(), seed), SETTINGS, PARAMETERS)
        for seed in range(8)
    ]
    assert 0.5 < np.exp(np.mean(np.log(factors))) < 2


def test_k_factor_is_large_for_unusual_frequencies() -> None:
    even = np.full(20, 1 / 20)
    factor = ShuffledTargets(sample(random_targets(even))).k_factor(
        random_profile(even), SETTINGS, PARAMETERS
    )
    assert factor > 4


def test_k_factor_equals_reference() -> None:
    targets, profile = random_targets(standard_frequencies()), random_profile(standard_frequencies())
    shuffled = ShuffledTargets(sample(targets))
    shuffled_targets = shuffled._targets
    indices, query = np.arange(len(shuffled_targets)), np.zeros(150, np.uint8)
    scores = align(profile, query, shuffled_targets, indices, 10, 1).records[:, 0]
    reversed_scores = align(profile[::-1].copy(), query, shuffled_targets, indices, 10, 1).records[:, 0]
    scores = corrected_scores(scores, reversed_scores, 150, shuffled_targets.lengths, PARAMETERS).tolist()
    lengths = shuffled_targets.lengths.tolist()
    # each target counts as a database by itself
    observed = sum(
        evalues(np.array([score]), 150, np.array([length]), length, PARAMETERS)[0] <= 0.1
        for score, length in zip(scores, lengths, strict=True)
    )
    expected = -math.log(1 - (observed + 0.5) / (SAMPLE_SIZE + 1)) / 0.1 * 0.8
    assert shuffled.k_factor(profile, SETTINGS, PARAMETERS) == pytest.approx(expected)


def test_shuffling_keeps_residues_and_changes_order() -> None:
    targets = random_targets(standard_frequencies(), 40)
    masked = SequenceArrays(targets.residues | MASK_BIT, targets.offsets, targets.lengths)
    shuffled = ShuffledTargets(sample(masked))._targets
    indices = np.round(np.linspace(0.02, 0.98, SAMPLE_SIZE) * 39 - 0.5).astype(int)
    for k in (0, 77, 499):
        before, after = targets.codes(int(indices[k])), shuffled.codes(k)
        assert sorted(before.tolist()) == sorted(after.tolist()) and before.tolist() != after.tolist()


def test_k_factor_does_not_depend_on_threads() -> None:
    targets, profile = random_targets(standard_frequencies()), random_profile(standard_frequencies())
    one, three = (
        ShuffledTargets(sample(targets)).k_factor(profile, replace(SETTINGS, threads=n), PARAMETERS)
        for n in (1, 3)
    )
    assert one == three


def test_k_factor_of_single_target_database_is_positive() -> None:
    only = encode(STANDARD * 5)
    targets = SequenceArrays(only, np.zeros(1, np.int64), np.array([len(only)], np.int32))
    assert ShuffledTargets(sample(targets)).k_factor(query_profile(only), SETTINGS, PARAMETERS) > 0
