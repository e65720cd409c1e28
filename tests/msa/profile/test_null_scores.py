"""What a profile finds by chance: as much as the parameters say where residues are as usual, else more."""

import math

import numpy as np
import pytest

from msa.alphabet import MASK_BIT, STANDARD, encode
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.profile import null_scores as chance
from msa.profile.family_profile import family_profile
from msa.profile.matrices import background
from msa.profile.null_scores import ShuffledTargets
from msa.profile.pssm import query_profile
from msa.profile.statistics import corrected_scores, evalue, gumbel_parameters
from msa.search.settings import SearchSettings

SETTINGS = SearchSettings(gap_open=10)
PARAMETERS = gumbel_parameters(10, 1)


def targets_of(frequencies: np.ndarray, count: int = 600) -> SequenceArrays:
    """Random targets, sorted by length."""
    rng = np.random.default_rng(1)
    lengths = np.sort(rng.integers(60, 500, count)).astype(np.int32)
    residues = rng.choice(20, int(lengths.sum()), p=frequencies).astype(np.uint8)
    return SequenceArrays(residues, np.cumsum(lengths, dtype=np.int64) - lengths, lengths)


def usual() -> np.ndarray:
    return background()[:20]


def random_profile(frequencies: np.ndarray, seed: int = 2) -> np.ndarray:
    """Of a family whose members share half of their residues."""
    rng = np.random.default_rng(seed)
    query = rng.choice(20, 150, p=frequencies)
    kept = rng.random(150) < 0.5
    rows = [np.where(kept, query, rng.choice(20, 150, p=frequencies)) for _ in range(10)]
    return family_profile(np.stack([query, *rows]).astype(np.uint8))


def test_usual_residues_score_by_chance_as_the_parameters_say() -> None:
    shuffled = ShuffledTargets(targets_of(usual()))
    excesses = [shuffled.excess(random_profile(usual(), seed), SETTINGS, PARAMETERS) for seed in range(8)]
    assert 0.5 < np.exp(np.mean(np.log(excesses))) < 2


def test_rare_residues_on_both_sides_make_chance_hits_likelier() -> None:
    even = np.full(20, 1 / 20)
    odd = ShuffledTargets(targets_of(even)).excess(random_profile(even), SETTINGS, PARAMETERS)
    assert odd > 4


def test_it_is_the_share_of_pairs_that_chance_should_reach_in_one_of_ten() -> None:
    targets, profile = targets_of(usual()), random_profile(usual())
    shuffled = ShuffledTargets(targets)
    null = shuffled._targets
    every, query = np.arange(len(null)), np.zeros(150, np.uint8)
    scores = [one.score for one in align(profile, query, null, every, 10, 1)]
    backwards = [one.score for one in align(profile[::-1].copy(), query, null, every, 10, 1)]
    scores = corrected_scores(np.array(scores), np.array(backwards), 150, null.lengths, PARAMETERS).tolist()
    lengths = null.lengths.tolist()
    reached = sum(evalue(s, 150, n, n, PARAMETERS) <= 0.1 for s, n in zip(scores, lengths, strict=True))
    expected = -math.log(1 - (reached + 0.5) / (chance.SHUFFLED + 1)) / 0.1 * 0.8
    assert shuffled.excess(profile, SETTINGS, PARAMETERS) == pytest.approx(expected)


def test_targets_keep_their_residues_but_not_their_order() -> None:
    targets = targets_of(usual(), 40)
    shuffled = ShuffledTargets(
        SequenceArrays(targets.residues | MASK_BIT, targets.offsets, targets.lengths)
    )._targets
    places = np.round(np.linspace(0.02, 0.98, chance.SHUFFLED) * 39 - 0.5).astype(int)
    for k in (0, 77, 499):
        before, after = targets.codes(int(places[k])), shuffled.codes(k)
        assert sorted(before.tolist()) == sorted(after.tolist()) and before.tolist() != after.tolist()


def test_it_is_the_same_every_time_and_on_any_number_of_threads() -> None:
    targets, profile = targets_of(usual()), random_profile(usual())
    one, three = (
        ShuffledTargets(targets).excess(profile, SearchSettings(gap_open=10, threads=n), PARAMETERS)
        for n in (1, 3)
    )
    assert one == three


def test_a_database_of_one_target_will_do() -> None:
    only = encode(STANDARD * 5)
    targets = SequenceArrays(only, np.zeros(1, np.int64), np.array([len(only)], np.int32))
    assert ShuffledTargets(targets).excess(query_profile(only), SETTINGS, PARAMETERS) > 0
