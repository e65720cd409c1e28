"""Tests of the all-atom network against OpenFold3 on the same parameters, features and draws.

The folder data contains a sample of its values; if ../shared/parity exists, whole tensors are compared too.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.openfold3 import source_of
from tests.model.alphafold3.goldens import all_taps, compare, read_folder
from tests.model.alphafold3.parity_networks import NETWORKS, features, network, pad, sample

# bounds of relative differences, and of coordinates, Å
RELATIVE, COORDINATES = 3e-6, 3e-4


def check(differences: dict[str, float]) -> None:
    """Compare the differences with their bounds."""
    assert differences.pop("Å") <= COORDINATES
    assert {name: value for name, value in differences.items() if not value <= RELATIVE} == {}


@pytest.mark.parametrize("name", NETWORKS)
def test_sampled_tensors_match_openfold3(name: str) -> None:
    expected = sample(name)
    differences = compare(all_taps(network(name), features(name), expected), expected)
    inputs = {key for key in expected if key.startswith(("features/", "sample/draws/")) or "/in" in key[-3:]}
    assert differences.keys() >= expected.keys() - inputs - {"names"}
    check(differences)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_whole_tensors_match_openfold3(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "parity" / "allatom" / name
    expected = read_folder(folder)
    inputs = AlphaFold3Inputs.from_arrays(np.load(folder / "features.npz"))
    check(compare(all_taps(network(name), inputs, expected), expected))


@pytest.mark.parametrize(("name", "config"), [("openbind", OPENBIND), ("p2", P2)])
def test_whole_network_has_the_tensors_of_its_checkpoint(name: str, config: AlphaFold3Config) -> None:
    with torch.device("meta"):
        whole = AlphaFold3(config, "reference")
    sources = [source_of(key, tuple(x.shape)) for key, x in whole.state_dict().items()]
    ours = {source.name: "x".join(map(str, source.shape)) for source in sources if source.name}
    lines = (line.split("\t")[:2] for line in bytes(sample(name)["names"]).decode().splitlines())
    assert ours == {key: shape for key, shape in lines if key != "version_tensor"}


def test_ending_attention_of_p2_and_openbind_differ() -> None:
    # neither names nor shapes tell this difference
    torch.manual_seed(0)
    pair = torch.randn(7, 7, 128)
    layers = [network(name).pairformer_stack.blocks[0].pair_stack.tri_att_end for name in NETWORKS]
    first, second = (layer(pair.clone(), None) - pair for layer in layers)
    assert torch.equal(layers[0].attention.query, layers[1].attention.query)
    assert not torch.allclose(first, second, atol=1e-2)


def test_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (
        network("p2").predict(features("p2"), SeededDraws(seed), cycles=1, steps=1, samples=2)
        for seed in (5, 5, 6)
    )
    assert torch.equal(first.positions, again.positions)
    for ours, theirs in zip(first.confidences, again.confidences, strict=True):
        assert torch.equal(ours.pae, theirs.pae)
        assert torch.equal(ours.ranking_score, theirs.ranking_score)
    assert not torch.equal(first.positions, other.positions)
    assert not torch.equal(first.positions[0], first.positions[1])


def test_padding_changes_nothing() -> None:
    inputs = features("openbind")
    results = [
        network("openbind").predict(x, SeededDraws(1), cycles=1, steps=2, samples=1)
        for x in (inputs, pad(inputs, tokens=3, atoms=40))
    ]
    plain, padded = results
    atoms, tokens = len(inputs.atom_mask), len(inputs.token_mask)
    assert torch.allclose(padded.positions[:, :atoms], plain.positions, atol=COORDINATES)
    assert bool((padded.positions[:, atoms:] == 0).all())
    ours, theirs = (result.confidences[0] for result in results)
    assert torch.allclose(theirs.pae[:tokens, :tokens], ours.pae, atol=1e-3)
    for name in ("ptm", "iptm", "disorder", "ranking_score", "chain_ptm", "chain_pair_iptm", "bespoke_iptm"):
        assert torch.allclose(getattr(theirs, name), getattr(ours, name), atol=1e-4), name
