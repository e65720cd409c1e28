"""Invariants of the whole network: masks, padding, templates, and variants of the architecture."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import MODEL_NAMES, ModelConfig, model_config
from model.alphafold2.network import AlphaFold, PassOutput
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network

CPU = torch.device("cpu")


def run(network: AlphaFold, features: dict[str, np.ndarray], iteration: int = 0) -> PassOutput:
    """Return the output of two passes over the features of one iteration."""
    with torch.inference_mode():
        tensors = feature_tensors(features, iteration, CPU)
        first = network.run_pass(tensors, network.initial_state(tensors))
        return network.run_pass(tensors, first.recycled_state())


def same(a: PassOutput, b: PassOutput, residues: int | None = None, atol: float = 2e-4) -> bool:
    cut = slice(residues)
    pairs = (a.representations.pair[cut, cut], b.representations.pair[cut, cut])
    return torch.allclose(*pairs, atol=atol) and torch.allclose(a.positions[cut], b.positions[cut], atol=atol)


def pad(features: dict[str, np.ndarray], axis: int, amount: int, seed: int) -> dict[str, np.ndarray]:
    """Append random values and zero masks along an axis, not counting the axis of iterations."""
    random = np.random.default_rng(seed)
    result = dict(features)
    for name, array in features.items():
        if array.ndim <= axis + 1:
            continue
        shape = list(array.shape)
        shape[axis + 1] = amount
        padding: Any = random.integers(0, 20, shape).astype(array.dtype)
        result[name] = np.concatenate([array, padding * (0 if "mask" in name else 1)], axis=axis + 1)
    return result


@pytest.mark.parametrize("rows", ["msa", "extra"])
def test_masked_rows_change_nothing(tiny: AlphaFold, make_features: Any, rows: str) -> None:
    features = make_features()
    names = {"msa": ("msa_feat", "msa_mask")}.get(rows, tuple(n for n in features if n.startswith("extra")))
    more = features | pad({name: features[name] for name in names}, 0, 3, seed=1)
    assert more[names[0]].shape[1] == features[names[0]].shape[1] + 3
    assert same(run(tiny, more), run(tiny, features))
    unmasked = {n: np.ones_like(x) if n.endswith("mask") else x for n, x in more.items()}
    assert not same(run(tiny, unmasked), run(tiny, features), atol=1e-2)


def test_padding_residues_change_nothing(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(templates=2)
    residues = features["aatype"].shape[1]
    one_dimensional = {n: features[n] for n in ("aatype", "residue_index", "seq_mask", "target_feat")}
    others = {n: features[n] for n in features if n not in (*one_dimensional, "template_mask")}
    more = features | pad(one_dimensional, 0, 4, seed=2) | pad(others, 1, 4, seed=3)
    assert more["msa_feat"].shape[2] == more["aatype"].shape[1] == residues + 4
    assert same(run(tiny, more), run(tiny, features), residues)


def test_masked_templates_change_nothing(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(templates=3)
    without = {n: x for n, x in features.items() if not n.startswith("template")}
    last_masked = dict(features)
    for name in ("template_mask", "template_all_atom_masks"):
        last_masked[name] = features[name].copy()
        last_masked[name][:, 2] = 0
    first_two = {n: x[:, :2] if n.startswith("template") else x for n, x in features.items()}
    assert same(run(tiny, last_masked), run(tiny, first_two))
    assert not same(run(tiny, features), run(tiny, first_two), atol=1e-2)
    none = features | {"template_mask": np.zeros_like(features["template_mask"])}
    assert same(run(tiny, none), run(tiny, without))
    assert not same(run(tiny, without), run(tiny, first_two), atol=1e-2)


def test_templates_are_an_unordered_set(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(templates=3)
    reverse = {n: x[:, ::-1] if n.startswith("template") else x for n, x in features.items()}
    assert same(run(tiny, reverse), run(tiny, features))


def test_msa_rows_after_the_first_are_an_unordered_set(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(rows=6)
    order = [0, 3, 5, 1, 2, 4]
    mixed = features | {"msa_feat": features["msa_feat"][:, order]}
    assert same(run(tiny, mixed), run(tiny, features))


def test_residue_index_only_matters_up_to_a_separation_of_32(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features()
    moved = features | {"residue_index": features["residue_index"] + 1000}
    assert same(run(tiny, moved), run(tiny, features), atol=0.0)
    gap = features["residue_index"] + 40 * (np.arange(9) > 4)
    wider = features["residue_index"] + 90 * (np.arange(9) > 4)
    assert same(
        run(tiny, features | {"residue_index": gap}), run(tiny, features | {"residue_index": wider}), atol=0.0
    )
    assert not same(run(tiny, features | {"residue_index": gap}), run(tiny, features), atol=1e-3)


def test_recycled_state_changes_the_output(tiny: AlphaFold, make_features: Any) -> None:
    tensors = feature_tensors(make_features(), 0, CPU)
    with torch.inference_mode():
        first = tiny.run_pass(tensors, tiny.initial_state(tensors))
        again = tiny.run_pass(tensors, tiny.initial_state(tensors))
    assert same(first, again, atol=0.0)
    assert not same(first, run(tiny, make_features()), atol=1e-2)


def test_bfloat16_network_is_close_to_float32(tiny_config: ModelConfig, make_features: Any) -> None:
    arrays = random_parameters(tiny_config)
    networks = [build_network(tiny_config, arrays, dtype=t) for t in (torch.float32, torch.bfloat16)]
    tensors = feature_tensors(make_features(templates=2), 0, CPU)
    with torch.inference_mode():
        full, half = (network(tensors) for network in networks)
    assert half["representations/pair"].dtype == torch.bfloat16
    assert half["structure_module/final_atom_positions"].dtype == torch.float32
    for name, x in full.items():
        assert (half[name].float() - x).norm() <= 0.05 * x.norm(), name


def test_network_without_pae_head(tiny_config: ModelConfig, make_features: Any) -> None:
    config = replace(tiny_config, predicted_aligned_error=False, template=None)
    network = build_network(config, random_parameters(config))
    with torch.inference_mode():
        results = network(feature_tensors(make_features(), 0, CPU))
    assert not any("aligned_error" in name for name in results)
    assert {"distogram/logits", "masked_msa/logits", "experimentally_resolved/logits"} <= results.keys()
    distances = results["distogram/logits"]
    assert torch.equal(distances, distances.transpose(0, 1))


def test_float32_parameters_on_the_cpu_share_memory(tiny_config: ModelConfig) -> None:
    arrays = random_parameters(tiny_config)
    network = build_network(tiny_config, arrays)
    pointers = {array.ctypes.data for array in arrays.values()}
    assert network.evoformer.single_activations.weights.data_ptr() in pointers
    assert sum(p.numel() for p in network.parameters()) == sum(a.size for a in arrays.values())


def test_published_networks_by_name() -> None:
    assert len(MODEL_NAMES) == 10
    for name in MODEL_NAMES:
        config = model_config(name)
        assert (config.template is not None) == (name[6] in "12")
        assert config.predicted_aligned_error == name.endswith("_ptm")
        assert config.trained and config.evoformer.blocks == 48
    with pytest.raises(ValueError, match="model_6"):
        model_config("model_6")


def test_unknown_kernels_are_an_error(tiny_config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="'fast'"):
        AlphaFold(tiny_config, kernels="fast")
