"""A tiny all-atom network, trained from the beginning on parts of two real complexes."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from features.alphafold3.inputs import Settings, build_sample
from features.training.crops import CropKind, TokenPlaces, choose_tokens, crop_features
from features.training.experiment import read_complex
from features.training.labels import MoleculeTable, molecule_table
from model.alphafold2.modules.config import PairConfig
from model.alphafold3.config import OPENBIND, AlphaFold3Config, AtomConfig, ConfidenceConfig, MsaModuleConfig
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.training.alphafold3.initialization import initialize
from model.training.alphafold3.losses import LossWeights, total_loss
from model.training.alphafold3.network import PassSettings, run_pass, trained_parameters
from model.training.alphafold3.noise import SeededTrainingDraws
from model.training.alphafold3.permutation import Crop, Experiment, Molecules, best_targets

ENTRIES = Path(__file__).parents[3] / "features" / "templates" / "data"
SETTINGS = PassSettings(copies=8, rollout_steps=2, most_cycles=1, dropout=False)
TOKENS = 24


def tiny_config() -> AlphaFold3Config:
    """Return a network of a few thousand parameters."""
    pair = PairConfig(16, 16, 2, 8, 2)
    atoms = AtomConfig(channels=16, pair_channels=8, heads=2, blocks=1)
    return replace(
        OPENBIND,
        name="tiny",
        single_channels=32,
        single_heads=2,
        single_transition_factor=2,
        pair=pair,
        pairformer_blocks=1,
        template_pair=pair,
        template_blocks=1,
        input_atoms=atoms,
        msa=MsaModuleConfig(
            channels=8, blocks=1, heads=2, head_channels=4, outer_channels=4, transition_factor=2
        ),
        diffusion=replace(OPENBIND.diffusion, channels=32, heads=2, blocks=2, noise_channels=16, atoms=atoms),
        confidence=ConfidenceConfig(blocks=1),
    )


def molecules(table: MoleculeTable) -> Molecules:
    """Return a table of molecules as tensors."""
    columns = {name: x for name, x in vars(table).items() if name != "symmetries"}
    return Molecules(**{name: torch.as_tensor(x) for name, x in columns.items()})


def sample(name: str) -> tuple[AlphaFold3Inputs, Crop, Experiment]:
    """Return a crop of an entry with its experimental structure."""
    known = read_complex(ENTRIES / f"{name}.cif.gz")
    whole = build_sample(known.job, Settings(templates=1))
    table = molecule_table(whole.atoms, whole.tokens)
    places = TokenPlaces(whole.tokens.chain, known.positions[table.centre], known.resolved[table.centre])
    tokens = choose_tokens(places, TOKENS, CropKind.INTERFACE, np.random.default_rng(1))
    cropped = table.crop(tokens)
    symmetries = {key: torch.as_tensor(x) for key, x in cropped.symmetries.items()}
    return (
        AlphaFold3Inputs.from_arrays(crop_features(whole.features, tokens)),
        Crop(molecules(cropped), symmetries),
        Experiment(molecules(table), torch.as_tensor(known.positions), torch.as_tensor(known.resolved)),
    )


def test_initial_parameters_depend_on_seed_and_name_alone() -> None:
    config = tiny_config()
    networks = [AlphaFold3(replace(config, pairformer_blocks=blocks), "reference") for blocks in (1, 2, 1)]
    for network, seed in zip(networks, (1, 1, 2), strict=True):
        initialize(network, seed)
    first, deeper, other = (network.state_dict() for network in networks)
    assert all(torch.equal(x, deeper[name]) for name, x in first.items())
    name = "input_embedder.linear_s.weight"
    assert not torch.equal(first[name], other[name])
    assert all(bool(x.isfinite().all()) for x in first.values())


def test_blocks_start_without_effect() -> None:
    network = AlphaFold3(tiny_config(), "reference")
    initialize(network, seed=1)
    single, pair = torch.randn(7, 32), torch.randn(7, 7, 16)
    updated = single.clone(), pair.clone()
    with torch.no_grad():
        network.pairformer_stack(*updated, None, None)
    assert torch.equal(updated[0], single)
    assert torch.equal(updated[1], pair)


@pytest.mark.slow
def test_a_tiny_network_memorises_two_complexes() -> None:
    samples = [sample("1lcd"), sample("4cup")]  # a protein with DNA, and one with a ligand
    config = tiny_config()
    network = AlphaFold3(config, "reference")
    initialize(network, seed=1)
    network.requires_grad_(False)
    parameters = list(trained_parameters(network).values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.Adam(parameters, lr=3e-3, betas=(0.9, 0.95))
    weights = replace(LossWeights(), distogram=0.3, plddt=0.01, pae=0.01, pde=0.01, resolved=0.01)
    history: list[dict[str, float]] = []
    for step in range(120):
        inputs, crop, experiment = samples[step % 2]
        output, targets = run_pass(
            network,
            inputs,
            lambda positions, crop=crop, experiment=experiment: best_targets(crop, experiment, positions),
            SeededTrainingDraws(step),
            SETTINGS,
        )
        total, terms = total_loss(output, inputs, targets, weights, config.diffusion.sigma_data)
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()
        history.append({"total": total.item()} | {name: term.item() for name, term in terms.items()})
    first, last = (
        {name: float(np.mean([x[name] for x in part])) for name in history[0]}
        for part in (history[:20], history[-20:])
    )
    assert all(np.isfinite(list(x.values())).all() for x in history)
    assert last["distogram"] < 0.6 * first["distogram"]
    assert last["total"] < 0.7 * first["total"]
    assert asdict(weights).keys() - {"bond"} <= last.keys()
