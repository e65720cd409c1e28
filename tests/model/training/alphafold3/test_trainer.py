"""A tiny all-atom network, trained from the beginning on parts of two real complexes."""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from features.alphafold3.inputs import InputSettings, build_sample
from features.training.crops import CropKind, TokenCentres, choose_tokens, crop_features
from features.training.experiment import read_complex
from features.training.labels import MoleculeTable, molecule_table
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.errors import ConfigError, TrainingDiverged
from model.layers.graphs import KeptGraphs
from model.training.alphafold3.initialization import initialize
from model.training.alphafold3.losses import AllAtomLossWeights, total_loss
from model.training.alphafold3.network import (
    PassSettings,
    rollout,
    run_pass,
    run_trunk,
    trained_parameters,
)
from model.training.alphafold3.noise import SeededTrainingDraws
from model.training.alphafold3.permutation import Crop, Experiment, Molecules, best_targets
from model.training.alphafold3.task import AllAtomTask, AllAtomTrainingSample, AllAtomTrainingSettings
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.trainer import Trainer
from tests.networks import tiny_all_atom

ENTRIES = Path(__file__).parents[3] / "features" / "templates" / "data"
SETTINGS = PassSettings(copies=8, rollout_steps=2, most_cycles=1, dropout=False)
TOKENS = 24


def molecules(table: MoleculeTable) -> Molecules:
    """Return a table of molecules as tensors."""
    columns = {name: x for name, x in vars(table).items() if name != "symmetries"}
    return Molecules(**{name: torch.as_tensor(x) for name, x in columns.items()})


@cache
def sample(name: str) -> AllAtomTrainingSample:
    """Return a crop of an entry with its experimental structure."""
    known = read_complex(ENTRIES / f"{name}.cif.gz")
    whole = build_sample(known.job, InputSettings(templates=1))
    table = molecule_table(whole.atoms, whole.tokens)
    places = TokenCentres(whole.tokens.chain, known.positions[table.centre], known.resolved[table.centre])
    tokens = choose_tokens(places, TOKENS, CropKind.INTERFACE, np.random.default_rng(1))
    cropped = table.crop(tokens)
    symmetries = {key: torch.as_tensor(x) for key, x in cropped.symmetries.items()}
    return AllAtomTrainingSample(
        AlphaFold3Inputs.from_arrays(crop_features(whole.features, tokens)),
        Crop(molecules(cropped), symmetries),
        Experiment(molecules(table), torch.as_tensor(known.positions), torch.as_tensor(known.resolved)),
    )


def test_initial_parameters_depend_on_seed_and_name_alone() -> None:
    config = tiny_all_atom()
    networks = [AlphaFold3(replace(config, pairformer_blocks=blocks), "reference") for blocks in (1, 2, 1)]
    for network, seed in zip(networks, (1, 1, 2), strict=True):
        initialize(network, seed)
    first, deeper, other = (network.state_dict() for network in networks)
    assert all(torch.equal(x, deeper[name]) for name, x in first.items())
    name = "input_embedder.linear_s.weight"
    assert not torch.equal(first[name], other[name])
    assert all(bool(x.isfinite().all()) for x in first.values())


def test_blocks_start_without_effect() -> None:
    network = AlphaFold3(tiny_all_atom(), "reference")
    initialize(network, seed=1)
    single, pair = torch.randn(7, 32), torch.randn(7, 7, 16)
    updated = single.clone(), pair.clone()
    with torch.no_grad():
        network.pairformer_stack(*updated, None, None)
    assert torch.equal(updated[0], single)
    assert torch.equal(updated[1], pair)


def make_trainer(samples: list[AllAtomTrainingSample], run: Path | None = None, **changes: object) -> Trainer:
    """Return a run that takes the samples in turn.

    Args:
        samples: the samples.
        run: folder of its checkpoint, from which it continues.
        changes: settings of the run.
    """
    weights = replace(AllAtomLossWeights(), distogram=0.3, plddt=0.01, pae=0.01, pde=0.01, resolved=0.01)
    settings = AllAtomTrainingSettings(
        network=tiny_all_atom(), learning_rate=3e-3, warmup_steps=1, losses=weights, passes=SETTINGS
    )
    processes = TrainingProcesses(0, 1, torch.device("cpu"))
    task = AllAtomTask(replace(settings, **changes), lambda number: samples[number % len(samples)], processes)
    return Trainer(task, run, processes, resume=True)


def losses(
    network: AlphaFold3, case: AllAtomTrainingSample, seed: int, settings: AllAtomTrainingSettings
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the total loss of a pass whose random numbers depend on the seed, and its terms."""
    output, targets = run_pass(
        network,
        case.inputs,
        lambda positions: best_targets(case.crop, case.experiment, positions),
        SeededTrainingDraws(seed),
        settings.passes,
    )
    return total_loss(output, case.inputs, targets, settings.losses, network.config.diffusion.sigma_data)


@torch.no_grad()
def mean_terms(trainer: Trainer, cases: list[AllAtomTrainingSample]) -> dict[str, float]:
    """Return the mean of each loss over samples and noise that training does not use."""
    passes = replace(SETTINGS, copies=32)
    settings = replace(trainer.settings, passes=passes)
    terms = [losses(trainer.task.network, case, 1000, settings)[1] for case in cases]
    return {name: float(np.mean([float(x[name]) for x in terms])) for name in terms[0]}


@pytest.mark.slow
def test_each_loss_falls_in_training_of_two_complexes() -> None:
    cases = [sample("1lcd"), sample("4cup")]  # a protein with DNA, and one with a ligand
    trainer = make_trainer(cases)
    first = mean_terms(trainer, cases)
    reports = list(trainer.train(max_steps=40))
    last = mean_terms(trainer, cases)
    assert not any(report.skipped for report in reports)
    assert first.keys() == asdict(AllAtomLossWeights()).keys() - {"bond"}
    shares = {name: last[name] / first[name] for name in first}
    # the network cannot lower one of the first three by learning another
    for name, most in (("position", 0.75), ("smooth_lddt", 0.95), ("distogram", 0.88)):
        assert shares.pop(name) < most, name
    assert max(shares.values()) < 0.25


def test_a_padded_rollout_with_kept_values_equals_a_plain_one() -> None:
    inputs, network, graphs = sample("4cup").inputs, AlphaFold3(tiny_all_atom(), "reference"), KeptGraphs()
    initialize(network, 1)
    assert len(inputs.atom_mask) < 24 * TOKENS
    with torch.no_grad():
        for seed in range(3):
            draws = SeededTrainingDraws(seed)
            trunk = run_trunk(network, inputs, draws, 1, 0.0)
            plain, kept = (rollout(network, inputs, trunk, draws, 2, each) for each in (None, graphs))
            assert torch.allclose(kept, plain, rtol=1e-5, atol=1e-3)


def test_a_run_continues_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    samples = [sample("4cup")]
    dropout = replace(SETTINGS, copies=2, dropout=True)
    whole = make_trainer(samples, passes=dropout)
    expected = [step.terms for step in whole.train(max_steps=3)]
    first = make_trainer(samples, tmp_path, passes=dropout)
    list(first.train(max_steps=1))
    other = make_trainer(samples, tmp_path, passes=dropout, seed=2)
    for name, tensor in first.task.network.state_dict().items():
        assert torch.equal(other.task.network.state_dict()[name], tensor)
    second = make_trainer(samples, tmp_path, passes=dropout)
    assert [step.terms for step in second.train(max_steps=2)] == expected[1:]
    for name in ("values", "average"):
        assert torch.equal(getattr(second.flat, name), getattr(whole.flat, name))
    assert expected[0] != expected[1]


def test_steps_are_those_of_adam_with_clipped_gradients_of_samples() -> None:
    samples = [sample("1lcd"), sample("4cup")]
    trainer = make_trainer(samples, batch=2, clip_norm=0.5, passes=replace(SETTINGS, copies=2))
    twin = make_trainer(samples)
    network, settings = twin.task.network, trainer.settings
    parameters = list(trained_parameters(network).values())
    optimizer = torch.optim.Adam(parameters, 3e-3, (settings.beta1, settings.beta2), settings.epsilon)
    for step, report in enumerate(trainer.train(max_steps=2)):
        gradients, values = [torch.zeros_like(x) for x in parameters], []
        for number in (2 * step, 2 * step + 1):
            case = samples[number % 2]
            optimizer.zero_grad()
            loss, _ = losses(network, case, number, settings)
            loss.backward()
            values.append(loss.item())
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            for gradient, parameter in zip(gradients, parameters, strict=True):
                if parameter.grad is not None:
                    gradient += parameter.grad / 2
        for gradient, parameter in zip(gradients, parameters, strict=True):
            parameter.grad = gradient
        optimizer.step()
        assert report.terms["loss"] == pytest.approx(np.mean(values), rel=1e-4)
        assert report.gradient_norm > 0.5
    for ours, theirs in zip(trained_parameters(trainer.task.network).values(), parameters, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)


def test_frozen_parameters_and_biases_that_openfold3_lacks_do_not_change() -> None:
    trainer = make_trainer([sample("4cup")], frozen=("diffusion_module.atom_attn_enc.", "aux_heads."))
    network = trainer.task.network
    before = {name: x.detach().clone() for name, x in network.named_parameters()}
    list(trainer.train(max_steps=3))
    changed = {name for name, x in network.named_parameters() if not torch.equal(x, before[name])}
    assert any(name.startswith("diffusion_module.atom_attn_dec.") for name in changed)
    assert not any(name.startswith(trainer.settings.frozen) for name in changed)
    assert changed <= trained_parameters(network).keys()
    with pytest.raises(ConfigError, match="frozen: no parameter begins with 'msa_modul_'"):
        make_trainer([sample("4cup")], frozen=("msa_modul_",))


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    good = sample("4cup")
    broken = replace(good.inputs, ref_pos=good.inputs.ref_pos * torch.nan)
    trainer = make_trainer([replace(good, inputs=broken)], max_skipped=1)
    values = trainer.flat.values.clone()
    steps = trainer.train()
    assert next(steps).skipped
    assert torch.equal(trainer.flat.values, values)
    with pytest.raises(TrainingDiverged, match="2 steps in a row"):
        next(steps)


def test_the_learning_rate_rises_and_decays_in_steps() -> None:
    settings = AllAtomTrainingSettings(learning_rate=1.0, warmup_steps=10, decay_every=100, decay_factor=0.5)
    assert [settings.rate(step) for step in (0, 4, 9, 99, 100, 250)] == [0.1, 0.5, 1.0, 1.0, 0.5, 0.25]


def test_each_process_has_a_share_of_the_samples() -> None:
    processes = TrainingProcesses(0, 2, torch.device("cpu"))
    for name, settings in [
        ("batch", AllAtomTrainingSettings(batch=3)),
        ("validation_samples", AllAtomTrainingSettings(batch=2, validation_samples=1)),
    ]:
        with pytest.raises(ConfigError, match=f"^{name}: "):
            AllAtomTask(settings, lambda _: sample("4cup"), processes, lambda _: sample("4cup"))
