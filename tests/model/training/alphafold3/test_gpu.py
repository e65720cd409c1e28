"""Tests of the training pass on a GPU: gradients with fused kernels, and a step in bfloat16."""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch

from model.alphafold3 import atoms, layers
from model.alphafold3.config import OPENBIND, AtomConfig
from model.alphafold3.network import AlphaFold3
from model.layers.graphs import KeptGraphs
from model.training.alphafold3 import blocks
from model.training.alphafold3.losses import TrainingOutput, total_loss
from model.training.alphafold3.network import (
    PassSettings,
    confidence,
    denoise,
    rollout,
    run_trunk,
    trained_parameters,
)
from model.training.alphafold3.noise import SeededTrainingDraws
from model.training.alphafold3.permutation import Crop, Experiment, Molecules
from model.training.alphafold3.targets import AtomTargets, centre_atoms
from model.training.alphafold3.task import AllAtomTask, AllAtomTrainingSample, AllAtomTrainingSettings
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.trainer import Trainer
from tests.model.alphafold3.goldens import load_network
from tests.model.alphafold3.parity_networks import NETWORKS, shallow_names
from tests.model.training.alphafold3.cases import gradient_case
from tests.model.training.alphafold3.loss_cases import SIGMA_DATA, WEIGHTS, load

pytestmark = pytest.mark.gpu
PARTS = (
    "input_embedder",
    "template_embedder",
    "msa_module.",
    "pairformer_stack",
    "diffusion_module.",
    "aux_heads",
)


def gradients(name: str, kernels: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return the gradients of the recorded case by parts of a network of two blocks."""
    source = load_network(shallow_names(name))
    network = AlphaFold3(source.config, kernels, "cuda").to("cuda")
    network.load_state_dict(source.state_dict())
    if kernels == "fused":
        FlatParameters(network, torch.device("cuda"))  # whose blocks are replayed as graphs
    network.requires_grad_(False)
    for parameter in trained_parameters(network).values():
        parameter.requires_grad_(True)
    case, noise = gradient_case()
    inputs, targets, given = load(case, torch.float32)
    inputs = inputs.to("cuda")
    targets = AtomTargets(targets.positions.cuda(), targets.resolved.cuda())
    sigmas, positions = given.sigmas.cuda(), given.positions.detach().cuda()
    none = 0.0
    trunk = run_trunk(network, inputs, SeededTrainingDraws(0), 2, none, dtype)
    noisy = torch.as_tensor(noise, dtype=torch.float32, device="cuda")
    output = TrainingOutput(
        denoise(network, inputs, trunk, noisy, sigmas) * targets.resolved[:, None],
        sigmas,
        network.aux_heads.distogram(trunk.pair),
        positions,
        confidence(network, inputs, trunk, positions, none),
    )
    total_loss(output, inputs, targets, replace(WEIGHTS), SIGMA_DATA)[0].backward()
    named = {
        key: torch.zeros_like(x) if x.grad is None else x.grad
        for key, x in trained_parameters(network).items()
    }
    return {
        part: torch.cat([x.flatten() for key, x in named.items() if key.startswith(part)]) for part in PARTS
    }


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_gradients_are_as_accurate_as_plain_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = {dtype: gradients(name, "fused", dtype) for dtype in (torch.float32, torch.bfloat16)}
    for module in (layers, atoms, blocks):
        monkeypatch.setattr(module, "uses_kernels", lambda x: False, raising=False)
    exact, plain = (gradients(name, "reference", dtype) for dtype in (torch.float32, torch.bfloat16))
    for part in PARTS:
        assert difference(fused[torch.float32][part], exact[part]) < 1e-3, part
        allowed = 2 * difference(plain[part], exact[part]) + 1e-3
        assert difference(fused[torch.bfloat16][part], exact[part]) < allowed, part


def small_trainer(run: Path | None = None) -> Trainer:
    """Return the training of a network of few blocks on one structure; it continues from a folder."""
    atom_blocks = AtomConfig(blocks=1)
    config = replace(
        OPENBIND,
        pairformer_blocks=2,
        template_blocks=1,
        input_atoms=atom_blocks,
        msa=replace(OPENBIND.msa, blocks=2),
        diffusion=replace(OPENBIND.diffusion, blocks=2, atoms=atom_blocks),
        confidence=replace(OPENBIND.confidence, blocks=1),
    )
    inputs, targets, _ = load(gradient_case()[0], torch.float32)
    index = torch.arange(len(inputs.token_mask))
    molecules = Molecules(
        0 * index,
        0 * index,
        index,
        index,
        inputs.is_ligand,
        centre_atoms(inputs)[0],
        inputs.atom_to_token_index,
    )
    experiment = Experiment(molecules, targets.positions, targets.resolved.bool())
    sample = AllAtomTrainingSample(inputs.to("cuda"), Crop(molecules, {}), experiment)
    passes = PassSettings(copies=16, rollout_steps=4, most_cycles=2)
    settings = AllAtomTrainingSettings(network=config, learning_rate=1e-3, warmup_steps=20, passes=passes)
    processes = TrainingProcesses(0, 1, torch.device("cuda", 0))
    return Trainer(AllAtomTask(settings, lambda number: sample, processes), run, processes, resume=True)


def test_the_rollout_with_kept_graphs_equals_a_new_one() -> None:
    trainer, graphs = small_trainer(), KeptGraphs()
    inputs, network = trainer.task._draw(0).inputs, trainer.task.network
    atoms = len(inputs.atom_mask)
    inputs = inputs.padded(-(-atoms // 1024) * 1024)  # as a rollout with kept graphs does
    for step in range(4):
        with torch.no_grad():
            trainer.flat.values.mul_(1 + 0.01 * step)
            draws = SeededTrainingDraws(step)
            trunk = run_trunk(network, inputs, draws, 1, 0.0, torch.bfloat16)
            new, kept = (rollout(network, inputs, trunk, draws, 4, x) for x in (None, graphs))
        assert torch.equal(kept, new)
    assert len(graphs._graphs) == 2


def test_a_small_network_learns_and_continues(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    reports = list(trainer.train(max_steps=200))
    for first in range(0, 200, 25):
        print(
            first,
            {x: round(mean(r.terms[x] for r in reports[first : first + 25]), 3) for x in reports[0].terms},
        )
    losses = [report.terms["loss"] for report in reports]
    assert not any(report.skipped for report in reports)
    assert mean(losses[-25:]) < 0.7 * mean(losses[:25])
    again = small_trainer(tmp_path)
    expected, steps = (
        [(x.terms, x.gradient_norm) for x in each.train(max_steps=3)] for each in (trainer, again)
    )
    assert steps == expected
    assert torch.equal(again.flat.values, trainer.flat.values)
    assert torch.equal(again.flat.average, trainer.flat.average)
