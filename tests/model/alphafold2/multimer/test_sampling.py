"""Tests of the sampling of alignments in multimer networks."""

import numpy as np
import pytest
import torch

from cuda.fused.chunking import chunk_budget
from model.alphafold2.modules.config import MultimerConfig
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs, distinct_slots
from model.alphafold2.multimer.sampling import cluster_profiles, order_rows, profile, replace_masked

Arrays = dict[str, np.ndarray]
CPU = torch.device("cpu")
CONFIG = MultimerConfig(msa_rows=4, extra_rows=6)


def test_preferred_rows_come_first_and_padding_last() -> None:
    random = np.random.default_rng(0)
    mask = np.ones((40, 3))
    mask[[5, 30]] = 0
    preferred = np.isin(np.arange(40), [0, 17])
    orders = [order_rows(mask, preferred, random.random(40, np.float32)) for _ in range(20)]
    for order in orders:
        assert sorted(order) == list(range(40))
        assert set(order[:2]) == {0, 17} and set(order[-2:]) == {5, 30}
    assert len({tuple(order[2:-2]) for order in orders}) == 20


def test_replacements_have_the_published_probabilities() -> None:
    length = 4000
    msa = torch.full((1, length), 3)
    column_profile = torch.zeros(length, 22)
    column_profile[:, 21] = 1
    masked = np.ones((1, length), bool)
    masked[0, ::4] = False
    replaced = replace_masked(msa, column_profile, masked, PhiloxMsaDraws(0, 0).codes(masked))[0].numpy()
    assert (replaced[::4] == 3).all()
    counts = np.bincount(replaced[masked[0]], minlength=23) / masked.sum()
    expected = np.zeros(23)
    expected[:20] = 0.005
    expected[3] += 0.1
    expected[21], expected[22] = 0.1, 0.7
    assert np.abs(counts - expected).max() < 0.03
    assert counts[20] < 0.003


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_cluster_profiles_equal_those_of_single_rows(rows: int) -> None:
    random = np.random.default_rng(rows)
    msa, extra = random.integers(0, 23, (4, 6)), random.integers(0, 22, (rows, 6))
    # two equal centres share their sequences
    msa[3] = msa[2]
    deletions, extra_deletions = random.integers(0, 5, (4, 6)), random.integers(0, 5, (rows, 6))
    mask, extra_mask = np.ones((4, 6)), (random.random((rows, 6)) < 0.8).astype(float)
    counts, sums, sizes = np.eye(23)[msa], deletions.astype(float), np.ones(4)
    for row in range(rows):
        agree = ((msa == extra[row]) & (msa < 21)) * extra_mask[row]
        nearest = agree.sum(axis=1) == agree.sum(axis=1).max()
        share = nearest / nearest.sum() * extra_mask[row].sum()
        sizes += share
        counts += share[:, None, None] * (np.eye(23)[extra[row]] * extra_mask[row][:, None])
        sums += share[:, None] * (extra_deletions[row] * extra_mask[row])
    tensors = [torch.from_numpy(x.astype(np.float32)) for x in (mask, deletions)]
    others = [torch.from_numpy(x.astype(np.float32)) for x in (extra_mask, extra_deletions)]
    for budget in (None, 1):
        with chunk_budget(budget):
            profiles, means = cluster_profiles(
                torch.from_numpy(msa), *tensors, torch.from_numpy(extra), *others
            )
        assert np.allclose(profiles, counts / sizes[:, None, None], rtol=1e-5, atol=1e-6)
        assert np.allclose(means, sums / sizes[:, None], rtol=1e-5, atol=1e-6)


def test_profile_ignores_padding() -> None:
    msa = torch.tensor([[1, 21], [1, 0], [4, 4]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    expected = torch.zeros(2, 22)
    expected[0, 1], expected[1, 21], expected[1, 0] = 1, 0.5, 0.5
    assert torch.equal(profile(msa, mask), expected)


def draw(features: Arrays, config: MultimerConfig = CONFIG, iteration: int = 0) -> dict[str, torch.Tensor]:
    """Return the inputs of a pass with seed 2."""
    return dict(MultimerInputs(features, config, lambda i: PhiloxMsaDraws(2, i), CPU)(iteration))


@pytest.mark.parametrize("msa_rows", [4, 17])
def test_padding_changes_nothing(complex_features: Arrays, msa_rows: int) -> None:
    config = MultimerConfig(msa_rows, extra_rows=6)
    inputs = draw(complex_features, config)
    rows = {name: np.pad(complex_features[name], ((0, 3), (0, 0))) for name in ("msa", "deletion_matrix")}
    padded = complex_features | rows
    padded["msa_mask"] = np.pad(np.ones(complex_features["msa"].shape, np.float32), ((0, 3), (0, 0)))
    padded["cluster_bias_mask"] = np.eye(18)[0].astype(np.float32)
    again = draw(padded, config)
    assert inputs.keys() == again.keys() and "msa_mask" not in inputs
    assert all(torch.equal(inputs[name], again[name]) for name in inputs)


class RecordedDraws(PhiloxMsaDraws):
    """Random numbers that keep the positions that are masked."""

    def codes(self, masked: np.ndarray) -> np.ndarray:
        self.masked = masked
        return super().codes(masked)


def test_padding_inside_rows_is_not_masked_and_not_read(complex_features: Arrays) -> None:
    mask = np.ones(complex_features["msa"].shape, np.float32)
    mask[1:, 4:] = 0
    draws = RecordedDraws(2, 0)
    results = []
    for code in (0, 7):
        msa = np.where(mask > 0, complex_features["msa"], code)
        features = complex_features | {"msa": msa, "msa_mask": mask}
        results.append(MultimerInputs(features, CONFIG, lambda _: draws, CPU)(0))
        padded = results[-1]["msa_mask"].numpy() == 0
        assert padded.sum() == 3 * 7 and draws.masked.any()
        assert not draws.masked[padded].any()
        # as DeepMind's code, which multiplies the codes by the mask
        assert (results[-1]["msa_feat"][padded][:, :23].argmax(dim=-1) == 0).all()
    for name in ("msa_feat", "msa_mask", "extra_msa_mask"):
        assert torch.equal(results[0][name], results[1][name]), name


def test_each_pass_has_its_own_sample(complex_features: Arrays) -> None:
    first, again, second = (draw(complex_features, iteration=i) for i in (0, 0, 1))
    assert torch.equal(first["msa_feat"], again["msa_feat"])
    assert not torch.equal(first["msa_feat"], second["msa_feat"])
    assert first["msa_feat"].shape == (4, 11, 49) and first["extra_msa"].shape == (6, 11)
    assert first["target_feat"].shape == (11, 21)
    # the query stays the first row; where it is not masked it is unchanged
    query = first["msa_feat"][0, :, :23].argmax(dim=-1)
    assert ((query == first["aatype"]) | (query == 22)).sum() >= 9


def test_alignment_of_few_rows_has_one_masked_extra_row(complex_features: Arrays) -> None:
    few = complex_features | {name: complex_features[name][:2] for name in ("msa", "deletion_matrix")}
    inputs = draw(few)
    assert inputs["msa_feat"].shape[0] == 2
    assert inputs["extra_msa"].shape == (1, 11) and not inputs["extra_msa_mask"].any()


def test_equal_empty_template_slots_are_embedded_once(complex_features: Arrays) -> None:
    slots, weights = distinct_slots(complex_features)
    assert slots.tolist() == [0, 1] and weights.tolist() == [0.25, 0.75]
    types = complex_features["template_aatype"].copy()
    types[2] = 21
    slots, weights = distinct_slots(complex_features | {"template_aatype": types})
    assert slots.tolist() == [0, 1, 2] and weights.tolist() == [0.25, 0.5, 0.25]
