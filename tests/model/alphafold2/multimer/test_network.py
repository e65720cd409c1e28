"""Tests of multimer networks: recycling with samples of their own, chains, templates, precision."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget
from features.complexes.features import features_of_rows
from features.complexes.rows import rows_of_file
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.embedders import RelativeEncoding
from model.alphafold2.multimer.inputs import MultimerInputs
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, ca_distance_change, predict
from model.checkpoints.alphafold2 import build_network
from model.planning.memory_plan import PassSize, plan_memory
from msa.alignments.complex_a3m import parse_complex_a3m

Arrays = dict[str, np.ndarray]


def inputs_of(network: AlphaFold, features: Arrays, seed: int = 0) -> MultimerInputs:
    assert network.config.multimer is not None
    return MultimerInputs(
        features, network.config.multimer, lambda i: PhiloxMsaDraws(seed, i), torch.device("cpu")
    )


def test_predict_draws_a_new_sample_in_each_pass(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    prediction = predict(tiny_multimer, complex_features, RecyclingSettings(2, seed=7))
    inputs = inputs_of(tiny_multimer, complex_features, seed=7)
    with torch.inference_mode():
        previous, positions = tiny_multimer.initial_state(inputs(0)), []
        for iteration in range(3):
            output = tiny_multimer.run_pass(inputs(iteration), previous)
            previous = output.recycled_state()
            positions.append(output.positions)
    assert np.array_equal(prediction.atom_positions, positions[-1].numpy())
    changes = [float(ca_distance_change(*two, None)) for two in pairwise(positions)]
    assert prediction.tolerances == pytest.approx(changes)
    assert np.array_equal(prediction.structure.residue_number - 1, complex_features["residue_index"])
    assert np.array_equal(prediction.aatype, complex_features["aatype"])
    assert np.array_equal(prediction.structure.residue_chain + 1, complex_features["asym_id"])
    assert prediction.scores is not None and prediction.ptm == pytest.approx(prediction.scores.ptm)
    assert 0 < prediction.scores.iptm < 1 and prediction.scores.pairwise_iptm.shape == (3, 3)


def test_features_of_a_complex_alignment_are_inputs(tiny_multimer: AlphaFold) -> None:
    alignment = b"#4,3\t1,2\n>101\t102\nACDEFGH\n>101\nACDE---\n>x\nAC-E---\n>102\n----FGH\n>y\n----FgGH\n"
    features = features_of_rows(rows_of_file(parse_complex_a3m(alignment)))
    assert features["msa"].shape[0] >= 512  # padded
    prediction = predict(tiny_multimer, features, RecyclingSettings(0))
    assert prediction.structure.residue_chain.tolist() == [0] * 4 + [1] * 3 + [2] * 3
    assert prediction.structure.residue_number.tolist() == [1, 2, 3, 4, 1, 2, 3, 1, 2, 3]
    assert np.isfinite(prediction.atom_positions).all() and prediction.num_chains == 3


def test_single_chain_has_no_scores_of_a_complex(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    one_chain = {name: np.ones(11) for name in ("asym_id", "entity_id", "sym_id")}
    prediction = predict(tiny_multimer, complex_features | one_chain, RecyclingSettings(0))
    assert prediction.num_chains == 1 and prediction.scores is None and prediction.ptm is not None


def test_seed_determines_the_prediction(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    first, again, other = (
        predict(tiny_multimer, complex_features, RecyclingSettings(1, seed=seed)).atom_positions
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_twenty_recycles_stop_early(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    done: list[int] = []
    prediction = predict(
        tiny_multimer, complex_features, RecyclingSettings(20, early_stop_tolerance=1e9),
        lambda passes, total: done.append(passes),
    )  # fmt: skip
    assert prediction.num_recycles == 1 and done == [1, 2]


def test_chunks_do_not_change_a_pass(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    with torch.inference_mode():
        inputs = inputs_of(tiny_multimer, complex_features)(0)
        whole = tiny_multimer(inputs)
        with chunk_budget(1):
            chunked = tiny_multimer(inputs)
    for name, tensor in whole.items():
        assert torch.allclose(tensor, chunked[name], rtol=1e-4, atol=1e-4), name


def test_relative_encoding_equals_products_with_one_hot_inputs() -> None:
    layer = RelativeEncoding(6)
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    names = ("residue_index", "asym_id", "entity_id", "sym_id")
    # far apart in sequence, and more copies than are told apart
    values = [
        np.array([0, 40, 41, 0, 33, 2]),
        np.arange(6) // 2,
        np.array([1, 1, 1, 1, 2, 2]),
        [1, 1, 5, 5, 1, 1],
    ]
    index, asym, entity, sym = (np.asarray(value) for value in values)
    inputs = torch.zeros(6, 6, 73)
    for i in range(6):
        for j in range(6):
            position = np.clip(index[i] - index[j], -32, 32) + 32 if asym[i] == asym[j] else 65
            copy = np.clip(sym[i] - sym[j], -2, 2) + 2 if entity[i] == entity[j] else 5
            inputs[i, j, [int(position), 67 + int(copy)]] = 1
            inputs[i, j, 66] = float(entity[i] == entity[j])
    features = {name: torch.as_tensor(value) for name, value in zip(names, values, strict=True)}
    for rows in (slice(None), slice(1, 3)):
        assert torch.allclose(layer(features, rows), layer.position_activations(inputs[rows]), atol=1e-6)


@pytest.mark.parametrize("name", ["asym_id", "entity_id", "sym_id"])
def test_chain_and_copy_numbers_change_the_output(
    tiny_multimer: AlphaFold, complex_features: Arrays, name: str
) -> None:
    with torch.inference_mode():
        pair = tiny_multimer(inputs_of(tiny_multimer, complex_features)(0))["representations/pair"]
        complex_features[name][-3:] = 1
        other = tiny_multimer(inputs_of(tiny_multimer, complex_features)(0))["representations/pair"]
    assert not torch.allclose(pair, other, atol=1e-3)


def test_templates_of_two_chains_have_no_common_frame(
    tiny_multimer: AlphaFold, complex_features: Arrays
) -> None:
    def logits(features: Arrays) -> torch.Tensor:
        with torch.inference_mode():
            return tiny_multimer(inputs_of(tiny_multimer, features)(0))["distogram/logits"]

    before = logits(complex_features)
    moved, changed = (complex_features["template_all_atom_positions"].copy() for _ in range(2))
    moved[0, 5:8] += np.float32([3, -20, 7])  # all of the second chain
    changed[0, 5] += np.float32([3, -20, 7])  # one of its residues
    assert torch.allclose(
        before, logits(complex_features | {"template_all_atom_positions": moved}), atol=1e-4
    )
    assert not torch.allclose(
        before, logits(complex_features | {"template_all_atom_positions": changed}), atol=1e-2
    )


def test_bf16_trunk_is_close_to_float32(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    config = tiny_multimer.config
    half = build_network(config, random_parameters(config), dtype=torch.bfloat16)
    with torch.inference_mode():
        inputs = inputs_of(tiny_multimer, complex_features)(0)
        exact, rounded = tiny_multimer(inputs), half(inputs)
        prediction = predict(half, complex_features, RecyclingSettings(0))
    assert (
        prediction.scores is not None and np.isfinite([prediction.scores.ptm, prediction.scores.iptm]).all()
    )
    for name in ("representations/pair", "representations/single", "distogram/logits"):
        difference = (rounded[name].float() - exact[name]).square().mean().sqrt()
        assert difference < 0.05 * exact[name].square().mean().sqrt(), name


def test_memory_is_planned_for_the_rows_of_a_pass(tiny_multimer: AlphaFold, complex_features: Arrays) -> None:
    size = PassSize.from_features(tiny_multimer, complex_features)
    # 4 sampled rows and one of a template; the template's slot and an empty one
    assert size == PassSize(11, 5, 6, 2, element_bytes=4, in_place=False, alignment_rows=15)
    more_rows = {name: np.tile(complex_features[name], (200, 1)) for name in ("msa", "deletion_matrix")}
    larger = PassSize.from_features(tiny_multimer, complex_features | more_rows)
    plans = [plan_memory(tiny_multimer.config, one, 2**40) for one in (size, larger)]
    assert plans[0].peak_bytes < plans[1].peak_bytes
