"""Tests of sampled features: rows, masks, clusters, templates, and reproducibility."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.alphafold2.deterministic import make_features
from features.alphafold2.random_draws import PhiloxDraws
from features.alphafold2.sampling import (
    SamplingSettings,
    assign_to_clusters,
    mask_columns,
    sample_features,
    sample_iteration,
    summarize_clusters,
)
from msa.base.residues import GAP, MASK, UNKNOWN
from tests.features.alphafold2.random_features import random_features
from tests.msa.alignments.alignment_builders import single_sequence


def row_numbers(msa: np.ndarray) -> list[int]:
    order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    return [100 * order.index(a) + 10 * order.index(b) + order.index(c) for a, b, c in msa[:, :3].tolist()]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**64 - 1))
@settings(max_examples=40, deadline=None)
def test_sampled_and_extra_rows_are_distinct_rows_of_the_alignment(
    rows: int, max_seq: int, max_extra_seq: int, seed: int
) -> None:
    features = random_features(rows, 8)
    drawn = sample_iteration(features, SamplingSettings(max_seq, max_extra_seq), PhiloxDraws(seed, 0))
    sampled = row_numbers(drawn["true_msa"])
    extra = row_numbers(drawn["extra_msa"]) if drawn["extra_msa_row_mask"].any() else []
    assert sampled[0] == 0
    assert len(sampled) == min(rows, max_seq)
    assert len(extra) == min(rows - len(sampled), max_extra_seq)
    assert len({*sampled, *extra}) == len(sampled) + len(extra)
    np.testing.assert_array_equal(drawn["true_msa"], features["msa"][sampled])
    np.testing.assert_array_equal(drawn["msa_feat"][..., 23], features["deletion_matrix"][sampled] > 0)
    if extra:
        np.testing.assert_array_equal(drawn["extra_msa"], features["msa"][extra])
        expected = 2 / np.pi * np.arctan(features["deletion_matrix"][extra] / 3)
        np.testing.assert_allclose(drawn["extra_deletion_value"], expected, atol=1e-7)


def test_masked_positions_follow_the_published_distribution() -> None:
    features = random_features(400, 120)
    settings = SamplingSettings(max_seq=400)
    drawn = sample_features(features, settings, num_iterations=4, seed=3)
    masked = drawn["bert_mask"].astype(bool)
    count = masked.size
    assert abs(masked.mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / count)
    residue = drawn["msa_feat"][..., :23].argmax(-1)
    assert np.array_equal(residue[~masked], drawn["true_msa"][~masked])

    truth, now = drawn["true_msa"][masked], residue[masked]
    column = np.nonzero(masked)[2]
    expected = np.zeros((masked.sum(), 23))
    expected[:, :20] += 0.1 * 0.05
    expected[:, :22] += 0.1 * features["hhblits_profile"][column]
    expected[np.arange(len(truth)), truth] += 0.1
    expected[:, MASK] += 0.7
    error = np.sqrt((expected * (1 - expected)).sum(axis=0)) + 1e-9
    assert np.all(np.abs(np.bincount(now, minlength=23) - expected.sum(axis=0)) < 4.5 * error)
    kept = expected[np.arange(len(truth)), truth]
    assert abs((now == truth).sum() - kept.sum()) < 4.5 * np.sqrt((kept * (1 - kept)).sum())


def test_sampling_depends_only_on_seed_and_iteration() -> None:
    features = random_features(90, 20)
    settings = SamplingSettings(20, 30, template_slots=4)
    once, again = (sample_features(features, settings, 3, seed=7) for _ in range(2))
    shorter, other = sample_features(features, settings, 1, 7), sample_features(features, settings, 3, 8)
    for name in once:
        assert once[name].tobytes() == again[name].tobytes()
        assert once[name][:1].tobytes() == shorter[name].tobytes()
    for name in ("true_msa", "bert_mask", "extra_msa", "msa_feat"):
        assert not np.array_equal(once[name], other[name])
        assert not np.array_equal(once[name][0], once[name][1])


def test_iterations_repeat_the_first_one_if_nothing_is_resampled() -> None:
    features = random_features(40, 20)
    repeated = sample_features(features, SamplingSettings(10, 7, 2, resample=False), 3, seed=5)
    first = sample_features(features, SamplingSettings(10, 7, 2), 1, seed=5)
    for name, value in repeated.items():
        assert len(value) == 3
        for iteration in range(3):
            np.testing.assert_array_equal(value[iteration], first[name][0])


def test_draws_are_reproducible_on_all_machines() -> None:
    draws = PhiloxDraws(seed=2**63 + 5, iteration=2)
    digest = hashlib.sha256()
    digest.update(draws.sample_order(1000).astype("<i8").tobytes())
    digest.update(draws.mask_positions(30, 40).astype("<f8").tobytes())
    probabilities = np.tile([[0.0, 0.25, 0.5, 0.0, 0.25]], (500, 1))
    codes = draws.replacements(probabilities, np.ones((5, 100), bool))
    digest.update(codes.astype("<i8").tobytes())
    digest.update(draws.extra_order(1000).astype("<i8").tobytes())
    assert digest.hexdigest() == "cbf55b22e131ca98ed68f735ca8b3614e304f8acbf5e0a0102bbfe878af4e805"
    assert set(codes) == {1, 2, 4}


class LowestDraws(PhiloxDraws):
    """Draws whose uniform numbers are all 0, the smallest possible."""

    def _uniform(self, stream: int, count: int) -> np.ndarray:
        return np.zeros(count)


def test_codes_with_probability_zero_are_never_drawn() -> None:
    probabilities = np.array([[0.0, 0.0, 0.25, 0.75], [1.0, 0.0, 0.0, 0.0]])
    assert LowestDraws(0, 0).replacements(probabilities, np.ones((1, 2), bool)).tolist() == [2, 0]


@pytest.mark.parametrize("count", [0, 1, 2, 257])
def test_orders_are_permutations(count: int) -> None:
    draws = PhiloxDraws(0, 0)
    for order in (draws.sample_order(count), draws.extra_order(count)):
        assert sorted(order.tolist()) == list(range(count))


def test_first_row_of_an_order_is_uniform() -> None:
    first = [PhiloxDraws(seed, 0).sample_order(10)[0] for seed in range(3000)]
    counts = np.bincount(first, minlength=10)
    assert np.all(np.abs(counts - 300) < 4.5 * np.sqrt(300))


def test_single_sequence_has_one_masked_extra_row() -> None:
    features = make_features([single_sequence("alone", "MKTAYIAK")])
    drawn = sample_features(features, SamplingSettings(), 2, seed=0)
    assert drawn["msa_feat"].shape == (2, 1, 8, 49)
    assert drawn["extra_msa_mask"].shape == (2, 1, 8)
    for name in drawn:
        if name.startswith("extra_"):
            assert not drawn[name].any(), name


def test_query_of_one_residue() -> None:
    drawn = sample_features(make_features([single_sequence("one", "G")]), SamplingSettings(), 1, seed=0)
    assert drawn["msa_feat"].shape == (1, 1, 1, 49)


def test_templates_fill_slots_in_order() -> None:
    features = random_features(5, 6)
    rng = np.random.default_rng(0)
    for name in [name for name in features if name.startswith("template_")]:
        shape = (6, *features[name].shape[1:])
        features[name] = rng.integers(1, 20, shape).astype(features[name].dtype)
    for slots in (4, 8):
        drawn = sample_features(features, SamplingSettings(16, 8, slots), 2, seed=0)
        filled = min(slots, 6)
        assert drawn["template_mask"].tolist() == [[1] * filled + [0] * (slots - filled)] * 2
        for name in [name for name in features if name.startswith("template_")]:
            assert drawn[name].shape == (2, slots, *features[name].shape[1:])
            np.testing.assert_array_equal(drawn[name][1, :filled], features[name][:filled])
            assert not drawn[name][:, filled:].any()
    assert not any(
        name.startswith("template_") for name in sample_features(features, SamplingSettings(), 1, 0)
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_seq": 4, "template_slots": 4}, "max_seq"),
        ({"max_extra_seq": 0}, "max_extra_seq"),
        ({"masked_fraction": 1.5}, "masked_fraction"),
    ],
)
def test_invalid_settings_are_an_error(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingSettings(**values)


@pytest.mark.parametrize(("seed", "iterations"), [(-1, 1), (2**64, 1), (0, 0)])
def test_invalid_seeds_and_counts_are_an_error(seed: int, iterations: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        sample_features(random_features(3, 4), SamplingSettings(), iterations, seed)


def random_rows(rng: np.random.Generator, rows: int, length: int, codes: int) -> np.ndarray:
    # few codes, so that ties and rows without agreement occur
    return rng.choice([0, 5, 20, 21, 22][: 3 + codes - 21], (rows, length)).astype(np.int8)


@given(st.integers(1, 9), st.integers(0, 11), st.integers(1, 13), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_rows_are_assigned_to_the_first_centre_with_most_agreements(
    centres: int, others: int, length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    msa, rest = random_rows(rng, centres, length, 23), random_rows(rng, others, length, 22)
    expected = []
    for row in rest:
        agreement = [sum(a == b and a < 21 for a, b in zip(row, centre, strict=True)) for centre in msa]
        expected.append(agreement.index(max(agreement)))
    assert assign_to_clusters(msa, rest).tolist() == expected


@given(st.integers(1, 6), st.integers(0, 20), st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_cluster_summaries_are_means_over_centre_and_members(
    centres: int, others: int, length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    msa, rest = random_rows(rng, centres, length, 23), random_rows(rng, others, length, 22)
    deletions, rest_deletions = (rng.poisson(0.7, rows.shape).astype(np.uint16) for rows in (msa, rest))
    assignment = rng.integers(centres, size=others)
    profile, mean = summarize_clusters(msa, deletions, rest, rest_deletions, assignment)
    assert profile.dtype == mean.dtype == np.float32
    for cluster in range(centres):
        members = np.concatenate([msa[[cluster]], rest[assignment == cluster]])
        counts = np.concatenate([deletions[[cluster]], rest_deletions[assignment == cluster]])
        # DeepMind's code adds 1e-6 against division by zero
        one_hot = np.eye(23)[members].sum(axis=0) / (len(members) + 1e-6)
        np.testing.assert_allclose(profile[cluster], one_hot, rtol=2e-7)
        np.testing.assert_allclose(mean[cluster], counts.sum(axis=0) / (len(members) + 1e-6), rtol=1e-6)


@pytest.mark.parametrize("length", [254, 255, 256, 511, 1021])
def test_cluster_assignment_of_rows_longer_than_a_byte_counter(length: int) -> None:
    rng = np.random.default_rng(length)
    msa = rng.integers(22, size=(5, length)).astype(np.int8)
    rest = msa[[4, 2, 0, 3, 1]].copy()
    rest[:, ::97] = GAP
    assert assign_to_clusters(msa, rest).tolist() == [4, 2, 0, 3, 1]
    whole = np.zeros((3, length), np.int8)
    whole[1:, -1] = GAP
    assert assign_to_clusters(whole[::-1], np.zeros((1, length), np.int8)).tolist() == [2]


def test_masked_columns_are_unknown_except_in_the_query() -> None:
    features = random_features(40, 30)
    masked = mask_columns(features, 0.2, seed=3)
    changed = (masked["msa"] != features["msa"]).any(axis=0)
    columns = np.flatnonzero((masked["msa"][1:] == UNKNOWN).all(axis=0))
    assert len(columns) == round(0.2 * features["msa"].shape[1])
    assert set(np.flatnonzero(changed)) <= set(columns)
    assert (masked["msa"][0] == features["msa"][0]).all()
    counts = (masked["msa"][..., None] == np.arange(22)).mean(axis=0)
    assert np.allclose(masked["hhblits_profile"][columns], counts[columns])
    other = mask_columns(features, 0.2, seed=4)["msa"]
    assert (other != masked["msa"]).any()
    assert mask_columns(features, 0.0, seed=3) is features
    settings = SamplingSettings(8, 6, masked_fraction=0.0, masked_columns=0.2)
    assert settings.is_random(2)
    drawn = sample_features(features, settings, 1, seed=3)
    expected = sample_features(masked, SamplingSettings(8, 6, masked_fraction=0.0), 1, seed=3)
    assert all(np.array_equal(drawn[name], expected[name]) for name in expected)


def test_given_features_are_passed_on_into_the_allocated_memory() -> None:
    features = random_features(5, 8) | {"cycle_length": np.full(8, 8)}
    names: list[str] = []

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        names.append(name)
        return np.empty(shape, dtype)

    drawn = sample_features(features, SamplingSettings(4, 2), 2, 0, allocate)
    assert (drawn["cycle_length"] == 8).all() and set(names) == drawn.keys()
