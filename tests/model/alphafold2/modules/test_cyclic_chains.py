"""Tests of the positions of residues in cyclic chains."""

from typing import Any

import numpy as np
import torch

from model.alphafold2.modules.embedders import position_differences
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import feature_tensors


def test_differences_are_the_shorter_way_in_cyclic_chains() -> None:
    lengths, cyclic = (8, 5, 3), (True, False, True)
    index = np.concatenate([np.arange(length) for length in lengths])
    cycle = np.repeat([n * c for n, c in zip(lengths, cyclic, strict=True)], lengths)
    features = {"residue_index": torch.from_numpy(index), "cycle_length": torch.from_numpy(cycle)}
    found = position_differences(features, slice(0, 13))
    assert found.shape == (13, 16) and found.dtype == torch.int64
    for chain, start in zip((8, 5), (0, 8), strict=True):
        for i in range(chain):
            for j in range(chain):
                # Rettie et al.: the shorter way, with its sign; of equal ways that of the sequence
                expected = i - j
                if chain == 8 and abs(expected) > 4:
                    expected -= 8 if expected > 0 else -8
                assert int(found[start + i, start + j]) == expected


def test_the_embedding_of_a_cyclic_chain_turns_with_its_sequence(tiny: AlphaFold, make_features: Any) -> None:
    features = make_features(residues=7)
    inputs = dict(feature_tensors(features, 0, torch.device("cpu")))
    inputs["cycle_length"] = torch.full((7,), 7)
    turned = dict(inputs)
    turned["target_feat"] = inputs["target_feat"].roll(3, 0)
    turned["msa_feat"] = inputs["msa_feat"].roll(3, 1)
    with torch.inference_mode():
        _, pair = tiny.evoformer.input_embedding(inputs)
        _, other = tiny.evoformer.input_embedding(turned)
        assert torch.allclose(pair.roll((3, 3), (0, 1)), other, atol=1e-6)
        del inputs["cycle_length"], turned["cycle_length"]
        _, pair = tiny.evoformer.input_embedding(inputs)
        _, other = tiny.evoformer.input_embedding(turned)
        assert not torch.allclose(pair.roll((3, 3), (0, 1)), other, atol=1e-3)
