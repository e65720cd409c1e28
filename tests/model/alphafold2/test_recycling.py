"""Tests of prediction: recycling, early stop, progress, and confidence scores."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget
from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from model.alphafold2.modules.heads import AlignedError, expected_errors, expected_plddt
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import (
    RecyclingSettings,
    ca_distance_change,
    feature_tensors,
    predict,
    start_prediction,
)
from model.checkpoints.alphafold2 import build_network
from model.prediction import EXTRAS
from msa.alignments.files import parse_alignment
from msa.base.network_inputs import MONOMER


def test_each_pass_uses_its_own_features_and_the_recycled_state(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=3)
    seen: list[tuple[int, int | None]] = []
    prediction = predict(tiny, features, RecyclingSettings(2), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert prediction.num_recycles == len(prediction.tolerances) == 2
    with torch.inference_mode():
        tensors = [feature_tensors(features, i, torch.device("cpu")) for i in range(3)]
        previous = tiny.initial_state(tensors[0])
        positions = [previous.positions]
        for current in tensors:
            output = tiny.run_pass(current, previous)
            previous = output.recycled_state()
            positions.append(output.positions)
    assert np.array_equal(prediction.atom_positions, positions[-1].numpy())
    for tolerance, before, after in zip(prediction.tolerances, positions[1:], positions[2:], strict=False):
        assert tolerance == pytest.approx(float(ca_distance_change(before, after, None)))


def test_recycled_pair_representation_is_freed_once_embedded(tiny: AlphaFold, make_features: Any) -> None:
    seen: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []

    def before_embedding(module: Any, inputs: tuple[Any, ...]) -> None:
        seen.append(weakref.ref(inputs[3].pair))

    def before_stack(module: Any, inputs: tuple[Any, ...]) -> None:
        alive.append(seen[-1]() is not None)

    trunk = tiny.evoformer
    hooks = [
        trunk.recycling_embedding.register_forward_pre_hook(before_embedding),
        trunk.extra_msa_embedding.register_forward_pre_hook(before_stack),
    ]
    try:
        predict(tiny, make_features(iterations=3), RecyclingSettings(2))
    finally:
        for hook in hooks:
            hook.remove()
    assert alive == [False] * 3


def test_recycled_state_is_the_input_of_one_pass(tiny: AlphaFold, make_features: Any) -> None:
    features = feature_tensors(make_features(), 0, torch.device("cpu"))
    with torch.inference_mode():
        state = tiny.initial_state(features)
        tiny.run_pass(features, state)
        with pytest.raises(ValueError, match="one pass only"):
            tiny.run_pass(features, state)


def test_started_predictions_do_not_change_each_other(tiny: AlphaFold, make_features: Any) -> None:
    features = [make_features(residues=n, iterations=2) for n in (7, 9)]
    settings = RecyclingSettings(1)
    expected = [predict(tiny, x, settings) for x in features]
    collects = [start_prediction(tiny, x, settings) for x in features]
    for collect, separate in zip(reversed(collects), reversed(expected), strict=True):
        prediction = collect()
        assert np.array_equal(prediction.atom_positions, separate.atom_positions)
        assert prediction.tolerances == separate.tolerances and prediction.ptm == separate.ptm


def test_early_stop_when_the_structure_converges(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=4)
    full = predict(tiny, features)
    assert full.num_recycles == 3
    calls: list[int] = []
    limit = full.tolerances[0] + 1e-6
    early = predict(tiny, features, RecyclingSettings(3, limit), lambda done, _: calls.append(done))
    assert early.num_recycles == 1 and calls == [1, 2]
    assert early.tolerances == full.tolerances[:1]
    once = predict(tiny, features, RecyclingSettings(1))
    assert np.array_equal(early.atom_positions, once.atom_positions)
    # the first pass has no previous structure, so there is always one recycle
    assert predict(tiny, features, RecyclingSettings(3, 1e9)).num_recycles == 1
    assert predict(tiny, features, RecyclingSettings(3, min(full.tolerances) * 0.99)).num_recycles == 3


def test_zero_recycles_make_one_pass(tiny: AlphaFold, make_features: Any) -> None:
    prediction = predict(tiny, make_features(iterations=1), RecyclingSettings(0))
    assert prediction.num_recycles == 0 and prediction.tolerances == ()


def test_too_few_iterations_of_features_are_an_error(tiny: AlphaFold, make_features: Any) -> None:
    with pytest.raises(ValueError, match="4 passes need features of 4 iterations, not 2"):
        predict(tiny, make_features(iterations=2))


def test_predictions_are_reproducible(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(residues=13, iterations=2)
    config = tiny.config
    predictions = [
        predict(build_network(config, random_parameters(config, seed)), features, RecyclingSettings(1))
        for seed in (0, 0, 1)
    ]
    first, second, other = (p.atom_positions.tobytes() + p.plddt.tobytes() for p in predictions)
    assert first == second != other


def test_prediction_shapes_and_ranges(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=2)
    p = predict(tiny, features, RecyclingSettings(1))
    assert np.array_equal(p.aatype, features["aatype"][0])
    assert p.atom_positions.shape == (9, 37, 3) and p.atom_positions.dtype == np.float32
    assert p.positions.shape == (len(p.structure.atom_name), 3)
    assert p.plddt.shape == (9,) and (p.plddt > 0).all() and (p.plddt < 100).all()
    assert p.pae is not None and p.pae.shape == (9, 9)
    assert p.ptm is not None and 0 < p.ptm < 1


@pytest.mark.parametrize("unknown", [False, True])
def test_single_residue(tiny: AlphaFold, make_features: Any, unknown: bool) -> None:
    features = make_features(residues=1, rows=1, extra=1, iterations=2)
    if unknown:
        features["aatype"][:] = 20
    features["extra_msa_mask"][:] = 0
    p = predict(tiny, features, RecyclingSettings(1))
    assert np.isfinite(p.atom_positions).all() and np.isfinite(p.plddt).all()
    assert (len(p.positions) > 0) != unknown


def test_ca_distance_change() -> None:
    random = np.random.default_rng(0)
    before, after = random.standard_normal((2, 6, 37, 3))
    mask = np.array([1, 1, 0, 1, 1, 1.0])
    total = count = 0.0
    for i in np.flatnonzero(mask):
        for j in np.flatnonzero(mask):
            a, b = (np.linalg.norm(x[i, 1] - x[j, 1]) for x in (before, after))
            total, count = total + (a - b) ** 2, count + 1
    ours = ca_distance_change(*(torch.from_numpy(x) for x in (before, after, mask)))
    assert float(ours) == pytest.approx(np.sqrt(total / count + 1e-8))
    rotated = after @ np.linalg.qr(random.standard_normal((3, 3)))[0] + 5.0
    change = ca_distance_change(*(torch.from_numpy(x) for x in (after, rotated, mask)))
    assert float(change) == pytest.approx(1e-4)


def test_plddt_is_the_expectation_over_bins() -> None:
    logits = torch.full((3, 50), -1e3)
    logits[0, 0] = logits[1, 49] = 0.0
    logits[2] = 0.0
    assert expected_plddt(logits).numpy() == pytest.approx([1.0, 99.0, 50.0])


def aligned_error(logits: torch.Tensor) -> AlignedError:
    expected = expected_errors(logits, torch.nn.Identity())
    return AlignedError.from_expected(*(x.numpy() for x in expected))


@pytest.mark.parametrize("length", [3, 40])
def test_pae_and_ptm_are_expectations_over_bins(length: int) -> None:
    logits = np.random.default_rng(1).standard_normal((length, length, 64)) * 3
    centers = np.arange(64) * 0.5 + 0.25
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    d0 = 1.24 * (max(length, 19) - 15) ** (1 / 3) - 1.8
    score = probabilities @ (1 / (1 + (centers / d0) ** 2))
    for budget in (1, None):
        with chunk_budget(budget):
            error = aligned_error(torch.from_numpy(logits))
        assert error.pae == pytest.approx(probabilities @ centers, rel=1e-5)
        assert error.ptm == pytest.approx(score.mean(axis=1).max(), rel=1e-5)
        assert error.max_pae == pytest.approx(31.75)


def test_ptm_uses_the_best_aligned_residue() -> None:
    logits = torch.full((20, 20, 64), -1e3)
    logits[..., 63] = 0.0
    logits[7, :, 63], logits[7, :, 0] = -1e3, 0.0
    error = aligned_error(logits)
    d0 = 1.24 * 5 ** (1 / 3) - 1.8
    assert error.ptm == pytest.approx(1 / (1 + (0.25 / d0) ** 2))
    assert error.pae[7].max() == pytest.approx(0.25) and error.pae[8].min() == pytest.approx(31.75)
    transposed = aligned_error(logits.transpose(0, 1))
    assert transposed.ptm == pytest.approx(error.ptm / 20, rel=0.01)


def test_masks_of_all_ones_are_left_out(make_features: Any) -> None:
    features = make_features(iterations=2)
    features["extra_msa_mask"][1, 2] = 0
    first, second = (feature_tensors(features, i, torch.device("cpu")) for i in range(2))
    assert not [name for name in first if name.endswith("mask")]
    assert [name for name in second if name.endswith("mask")] == ["extra_msa_mask"]
    assert torch.equal(second["extra_msa_mask"], torch.from_numpy(features["extra_msa_mask"][1]))


def test_extras_are_the_passes_and_the_results_of_the_last(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=2)
    plain = predict(tiny, features, RecyclingSettings(1))
    full = predict(tiny, features, RecyclingSettings(1, extras=frozenset(EXTRAS)))
    assert (plain.extras, plain.passes, dict(plain.results)) == ((), (), {})
    assert full.extras == EXTRAS and len(full.passes) == 2
    np.testing.assert_array_equal(full.atom_positions, plain.atom_positions)
    last, first = full.after_pass(1), full.after_pass(0)
    np.testing.assert_array_equal(last.atom_positions, full.atom_positions)
    np.testing.assert_array_equal(last.plddt, full.plddt)
    once = predict(tiny, features, RecyclingSettings(0))
    np.testing.assert_array_equal(first.atom_positions, once.atom_positions)
    assert full.results.keys() == tiny(feature_tensors(features, 0, torch.device("cpu"))).keys()
    for extras in (("single",), ("pair",), ("pair", "single")):
        partial = predict(tiny, features, RecyclingSettings(1, extras=frozenset(extras)))
        assert partial.results.keys() == {f"representations/{extra}" for extra in extras}
        for name, result in partial.results.items():
            np.testing.assert_array_equal(result, full.results[name])


def test_network_reads_what_the_contract_declares() -> None:
    alignment = parse_alignment(b"".join(b">%d\nMKVLG%c\n" % (row, 65 + row) for row in (0, 2, 3, 4, 5)))
    features = sample_features(make_features([alignment]), SamplingSettings(6, 2, 4), 1, seed=0)
    tensors = feature_tensors(features, 0, torch.device("cpu"))
    kinds = {name: MONOMER[name].kind for name in tensors}
    # masks of ones are left out
    assert kinds == {name: x.kind for name, x in MONOMER.items() if x.kind in ("index", "number")}
    assert {name for name, x in tensors.items() if x.dtype == torch.int64} == {
        name for name, kind in kinds.items() if kind == "index"
    }
    features["seq_mask"][0, -1] = 0
    assert feature_tensors(features, 0, torch.device("cpu"))["seq_mask"].tolist() == [1, 1, 1, 1, 1, 0]


def test_start_positions_are_those_of_a_pass_before_the_first(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=2)
    length = features["aatype"].shape[1]
    guess = np.random.default_rng(0).uniform(0, 20, (length, 37, 3)).astype(np.float32)
    started = predict(tiny, features | {"start_positions": guess}, RecyclingSettings(0))
    with torch.inference_mode():
        inputs = feature_tensors(features, 0, torch.device("cpu"))
        state = tiny.initial_state(inputs)
        state.positions = torch.from_numpy(guess)
        expected = tiny.run_pass(inputs, state).positions
    assert np.array_equal(started.atom_positions, expected.numpy())
    without = predict(tiny, features, RecyclingSettings(0))
    assert not np.array_equal(started.atom_positions, without.atom_positions)
    # atoms without coordinates are as far as nothing is known of them
    nothing = np.full_like(guess, np.nan)
    unknown = predict(tiny, features | {"start_positions": nothing}, RecyclingSettings(1))
    assert np.isfinite(unknown.tolerances).all()
    again = predict(tiny, features, RecyclingSettings(1))
    assert np.array_equal(unknown.atom_positions, again.atom_positions)


def test_dropout_depends_on_the_seed_only_and_leaves_no_trace(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(iterations=2)
    plain = predict(tiny, features, RecyclingSettings(1))
    drops = [predict(tiny, features, RecyclingSettings(1, seed=seed, dropout=True)) for seed in (0, 0, 1)]
    positions = [drop.atom_positions for drop in drops]
    assert np.array_equal(positions[0], positions[1])
    assert not np.array_equal(positions[0], positions[2])
    assert not np.array_equal(positions[0], plain.atom_positions)
    again = predict(tiny, features, RecyclingSettings(1))
    assert np.array_equal(again.atom_positions, plain.atom_positions)
