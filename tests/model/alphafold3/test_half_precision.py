"""Denoising with half-precision operands, against single precision."""

from copy import deepcopy

import pytest
import torch

from model.alphafold3.layers import AdaptiveLayerNorm, SwiGLUTransition, joint_modulations, linear
from model.alphafold3.network import AlphaFold3, TrunkOutput
from model.alphafold3.sampling import SeededDraws
from tests.model.alphafold3.parity_networks import features, network, pad

LEVELS = [0.05, 16.0, 2560.0]


@torch.no_grad()
def denoise(model: AlphaFold3, trunk: TrunkOutput, padding: int, sigma: float) -> torch.Tensor:
    inputs = features("openbind")
    if padding:
        inputs = pad(inputs, padding, padding)
    module = model.diffusion_module
    conditions = module.conditions(inputs, trunk.features, trunk.single, trunk.pair, trunk.relative)
    noise = SeededDraws(0).initial(2, len(inputs.atom_mask))
    return module(inputs, conditions, sigma * noise, torch.tensor(sigma))


@pytest.mark.parametrize("padding", [0, 5])
def test_update_is_close_to_that_of_single_precision(padding: int) -> None:
    single = network("openbind")
    inputs = features("openbind")
    if padding:
        inputs = pad(inputs, padding, padding)
    trunk = single.trunk(inputs, SeededDraws(0), cycles=1)
    half = deepcopy(single)
    half.diffusion_module.use_half_precision()
    for sigma in LEVELS:
        expected = denoise(single, trunk, padding, sigma)
        found = denoise(half, trunk, padding, sigma)
        atoms = inputs.atom_mask.bool()
        # positions that the network adds to the scaled noise, which both have
        scale = single.config.diffusion.sigma_data
        update = sigma * scale / (sigma**2 + scale**2) ** 0.5
        assert (found - expected)[:, atoms].square().mean().sqrt() < 5e-4 * update


def test_groups_of_samples_are_the_same_samples() -> None:
    model, inputs = network("openbind"), features("openbind")
    trunk = model.trunk(inputs, SeededDraws(0), cycles=0)
    together, divided = (
        model.sample(inputs, trunk, SeededDraws(0), steps=1, samples=3, samples_at_once=count)
        for count in (None, 2)
    )
    torch.testing.assert_close(divided, together, rtol=1e-5, atol=1e-3)


def test_joint_modulations_follow_every_parameter() -> None:
    torch.manual_seed(0)
    norm, gate, condition = AdaptiveLayerNorm(8, 4), linear(4, 8, bias=True), torch.randn(3, 4)
    for parameter in [*norm.parameters(), *gate.parameters()]:
        with torch.no_grad():
            joint_modulations([norm], [gate], condition)
            parameter.add_(1)
            (joint,) = joint_modulations([norm], [gate], condition)
            expected = norm(condition, gate)
            torch.testing.assert_close(joint.scale.float().sigmoid(), expected.scale, rtol=0, atol=4e-3)
            torch.testing.assert_close(joint.shift.float(), expected.shift, rtol=0, atol=4e-3)
            torch.testing.assert_close(joint.gate.sigmoid(), expected.gate)


def test_transitions_of_other_widths_have_no_kernel() -> None:
    assert SwiGLUTransition(64, 2).has_kernel and SwiGLUTransition(128, 4).has_kernel
    assert not SwiGLUTransition(16, 2).has_kernel and not SwiGLUTransition(384, 4).has_kernel
