"""Tests of the training pass against OpenFold3's gradients, and of what a pass promises."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from model.alphafold3 import atoms
from model.alphafold3.embedding import RelativePositions
from model.alphafold3.network import AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.openfold3 import openfold3_tensors
from model.training.alphafold3 import blocks
from model.training.alphafold3.losses import TrainingOutput, total_loss
from model.training.alphafold3.network import (
    PassSettings,
    confidence,
    denoise,
    run_pass,
    run_trunk,
    trained_parameters,
)
from model.training.alphafold3.noise import SeededTrainingDraws, noised_copies
from model.training.alphafold3.targets import AtomTargets
from tests.model.alphafold3.goldens import sample_logits
from tests.model.alphafold3.parity_networks import NETWORKS
from tests.model.alphafold3.parity_networks import network as inference_network
from tests.model.training.alphafold3.cases import gradient_case, sketch
from tests.model.training.alphafold3.loss_cases import SIGMA_DATA, WEIGHTS, load

RECORDED = dict(np.load(Path(__file__).parent / "data" / "gradients.npz"))
# gradients that are 0 but for rounding: an offset that is the same for all keys changes no attention
VANISHING = 1e-10
CYCLES = 2
# relative bounds in each dtype
BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-6}


def trainable_network(dtype: torch.dtype) -> AlphaFold3:
    """Return the network of few blocks whose gradients were recorded."""
    network = deepcopy(inference_network("openbind")).to(dtype)
    for parameter in trained_parameters(network).values():
        parameter.requires_grad_(True)
    return network


def recorded_pass(network: AlphaFold3) -> torch.Tensor:
    """Return the total loss of the recorded case."""
    dtype = network.linear_z.weight.dtype
    case, noise = gradient_case()
    inputs, targets, given = load(case, dtype)
    none = 0.0
    trunk = run_trunk(network, inputs, SeededTrainingDraws(0), CYCLES, none)
    noisy = torch.as_tensor(noise, dtype=dtype)
    output = TrainingOutput(
        denoise(network, inputs, trunk, noisy, given.sigmas) * targets.resolved[:, None],
        given.sigmas,
        network.aux_heads.distogram(trunk.pair),
        given.positions,
        confidence(network, inputs, trunk, given.positions.detach(), none),
    )
    return total_loss(output, inputs, targets, WEIGHTS, SIGMA_DATA)[0]


def recorded_sketches() -> dict[str, np.ndarray]:
    """Return the sketches of OpenFold3's gradients by name."""
    names = bytes(RECORDED["names"]).decode().splitlines()
    return dict(zip(names, RECORDED["sketches"], strict=True))


def gradients(network: AlphaFold3) -> dict[str, np.ndarray]:
    """Return the gradients by OpenFold3's names, in its shapes."""
    found = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in trained_parameters(network).items()
    }
    return {name: gradient.contiguous().numpy() for name, gradient in openfold3_tensors(found).items()}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_gradients_match_openfold3(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    network = trainable_network(dtype)
    if dtype == torch.float64:  # as large inputs, which are updated in parts
        monkeypatch.setattr(blocks, "_TRANSITION_PAIRS", 1000)
        monkeypatch.setattr(atoms, "GRADIENT_ATOMS", 300)
    total = recorded_pass(network)
    total.backward()
    expected = recorded_sketches()
    largest = max(norm for norm, *_ in expected.values())
    assert total.item() == pytest.approx(float(RECORDED["total"]), rel=BOUNDS[dtype])
    differences = {}
    found = gradients(network)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        norm = expected[name][0]
        difference = sketch(name, gradient) - expected[name]
        scale = norm if norm > VANISHING else largest
        differences[name] = np.sqrt(np.square(difference[1:]).mean()) / scale
    assert {name: x for name, x in differences.items() if not x <= BOUNDS[dtype]} == {}


def test_biases_that_openfold3_lacks_are_not_trained() -> None:
    network = trainable_network(torch.float32)
    others = dict(network.named_parameters()).keys() - trained_parameters(network).keys()
    assert len(others) > 20
    for name in others:
        parameter = network.get_parameter(name)
        assert not parameter.requires_grad
        assert not bool(parameter.any())


@pytest.mark.parametrize("name", NETWORKS)
def test_without_dropout_a_pass_computes_what_inference_computes(name: str) -> None:
    network = inference_network(name)
    inputs, _, given = load(gradient_case()[0], torch.float32)
    none = 0.0
    draws = SeededTrainingDraws(0)
    with torch.no_grad():
        trained = run_trunk(network, inputs, draws, CYCLES, none)
        expected = network.trunk(inputs, draws, cycles=CYCLES)
        for part in ("features", "single", "pair"):
            assert torch.allclose(getattr(trained, part), getattr(expected, part), rtol=1e-4, atol=1e-4)
        ours = confidence(network, inputs, expected, given.positions, none)
        theirs = sample_logits(network, inputs, expected, given.positions)
        for head in ("plddt", "resolved", "pae", "pde"):
            assert torch.allclose(getattr(ours, head), getattr(theirs, head), rtol=1e-4, atol=1e-4)


def random_trunk(network: AlphaFold3, tokens: int, relative: RelativePositions) -> TrunkOutput:
    """Draw the representations of some tokens."""
    config, generator = network.config, torch.Generator().manual_seed(0)
    shapes = (
        (tokens, config.input_channels),
        (tokens, config.single_channels),
        (tokens, tokens, config.pair.channels),
    )
    return TrunkOutput(*(torch.randn(shape, generator=generator) for shape in shapes), relative)


def test_copies_with_their_own_noise_are_independent() -> None:
    network = inference_network("openbind")
    inputs, _, given = load(gradient_case()[0], torch.float32)
    relative = RelativePositions.of(inputs, network.config)
    trunk = random_trunk(network, len(inputs.token_mask), relative)
    noisy = torch.as_tensor(gradient_case()[1], dtype=torch.float32)
    with torch.no_grad():
        together = denoise(network, inputs, trunk, noisy, given.sigmas)
        for copy, sigma in enumerate(given.sigmas):
            alone = denoise(network, inputs, trunk, noisy[copy : copy + 1], sigma)
            assert torch.allclose(together[copy], alone[0], atol=1e-3)


def test_noise_levels_and_motions_of_copies() -> None:
    case, _ = gradient_case()
    _, targets, _ = load(case)
    count = 20000
    draws = SeededTrainingDraws(4).copies(200, len(case.positions))
    level = SeededTrainingDraws(5).copies(count, 1).level
    assert torch.equal(
        SeededTrainingDraws(4).copies(3, len(case.positions)).motion.noise, draws.motion.noise[:3]
    )
    logarithm = torch.log(noised_copies(targets, draws, SIGMA_DATA)[1] / SIGMA_DATA)
    assert torch.allclose(logarithm, (-1.2 + 1.5 * draws.level).double())
    assert float(level.mean()) == pytest.approx(0, abs=0.03)
    assert float(level.std()) == pytest.approx(1, abs=0.03)
    noisy, sigmas = noised_copies(targets, draws._replace(level=draws.level - 20), SIGMA_DATA)
    resolved = targets.resolved.bool()
    assert bool((noisy[:, ~resolved] == 0).all())
    # with hardly any noise, each copy is the structure, moved
    distances = torch.cdist(noisy[:, resolved], noisy[:, resolved])
    true = torch.cdist(targets.positions[resolved], targets.positions[resolved])
    assert torch.allclose(distances, true.expand_as(distances), atol=1e-4)
    centres = noisy[:, resolved].mean(dim=1)
    assert float(centres.std()) == pytest.approx(1, abs=0.15)
    assert bool((sigmas < 1e-5).all())


def test_cycles_are_drawn_evenly() -> None:
    counts = np.bincount([SeededTrainingDraws(seed).cycles(4) for seed in range(2000)], minlength=5)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 500).max() < 80


def test_one_pass_trains_all_parameters_and_repeats() -> None:
    network = trainable_network(torch.float32)
    inputs, targets, _ = load(gradient_case()[0], torch.float32)
    seen: list[torch.Tensor] = []

    def match(positions: torch.Tensor) -> AtomTargets:
        seen.append(positions)
        return targets

    settings = PassSettings(copies=2, rollout_steps=2, most_cycles=2)
    draws = next(x for x in map(SeededTrainingDraws, range(9)) if x.cycles(2) == 2)
    totals = []
    for _ in range(2):
        torch.manual_seed(3)  # of dropout
        output, truth = run_pass(network, inputs, match, draws, settings)
        totals.append(total_loss(output, inputs, truth, WEIGHTS, SIGMA_DATA)[0])
    assert totals[0].item() == totals[1].item()
    assert not seen[0].requires_grad
    assert seen[0].shape == targets.positions.shape
    totals[0].backward()
    # inputs that are 0 throughout, such as those of empty templates
    unused = {name for name, (norm, *_) in recorded_sketches().items() if norm == 0}
    assert {name for name, gradient in gradients(network).items() if not gradient.any()} == unused
    network.requires_grad_(False)
    assert torch.isfinite(
        network.predict(inputs, SeededDraws(0), cycles=1, steps=1, samples=1).positions
    ).all()
