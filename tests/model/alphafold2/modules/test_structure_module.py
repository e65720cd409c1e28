"""Tests of the structure module: invariances, masks, chunks and memory."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget
from model.alphafold2.modules.config import ModelConfig, StructureConfig
from model.alphafold2.modules.point_attention import (
    InvariantPointAttention,
    PointAttention,
    point_attention_elements,
)
from model.alphafold2.modules.structure_module import Backbone, StructureModule
from model.alphafold2.network import AlphaFold
from model.layers.kernels import REFERENCE
from model.layers.rigid import Rigid, rotation_from_quaternion

LENGTH = 11


@pytest.fixture
def attention(tiny: AlphaFold) -> PointAttention:
    return tiny.structure_module.fold_iteration.invariant_point_attention


def random_rigid(*shape: int, seed: int = 0) -> Rigid:
    generator = torch.Generator().manual_seed(seed)
    quaternion = torch.randn(*shape, 4, generator=generator)
    translation = torch.randn(*shape, 3, generator=generator)
    return Rigid(
        rotation_from_quaternion(quaternion / quaternion.norm(dim=-1, keepdim=True)), 2 * translation
    )


@pytest.fixture
def inputs(tiny_config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    channels = tiny_config.structure.channels, tiny_config.evoformer.pair.channels
    single = torch.randn(LENGTH, channels[0], generator=generator)
    return single, torch.randn(LENGTH, LENGTH, channels[1], generator=generator)


def test_point_attention_is_invariant_to_a_common_rigid_motion(
    attention: PointAttention, inputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    frames, motion = random_rigid(LENGTH), random_rigid(1, seed=3)
    logits = attention.pair_logits(inputs[1])
    before = attention(*inputs, logits, frames, None)
    after = attention(*inputs, logits, motion.compose(frames), None)
    assert torch.allclose(after, before, atol=1e-4)
    # but it depends on relative positions
    moved = Rigid(frames.rotation, frames.translation * torch.linspace(1, 2, LENGTH)[:, None])
    assert not torch.allclose(attention(*inputs, logits, moved, None), before, atol=1e-2)


def test_chunks_do_not_change_point_attention(
    attention: PointAttention, inputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    frames, mask = random_rigid(LENGTH), torch.arange(LENGTH) < LENGTH - 2
    arguments = *inputs, attention.pair_logits(inputs[1]), frames, mask.float()
    with chunk_budget(2**40):
        whole = attention(*arguments)
    for budget in (1, 700, None):
        with chunk_budget(budget):
            assert torch.allclose(attention(*arguments), whole, atol=1e-5)


def test_masked_residues_have_no_effect(
    attention: PointAttention, inputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    single, pair = inputs
    real = LENGTH - 4
    mask = (torch.arange(LENGTH) < real).float()
    frames = random_rigid(LENGTH)
    logits = attention.pair_logits(pair)
    padded = attention(single, pair, logits, frames, mask)[:real]
    unpadded = attention(single[:real], pair[:real, :real], logits[:, :real, :real], frames[:real], None)
    assert torch.allclose(padded, unpadded, atol=1e-5)


def test_backbone_updates_are_local() -> None:
    start = Backbone(torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1.0, 2.0, 3.0]]))
    # this quaternion rotates x to y, y to z, z to x
    moved = start.compose_update(torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]), start.to_rigid())
    assert torch.allclose(moved.translation, torch.tensor([[1.0, 3.0, 3.0]]))
    assert torch.allclose(moved.quaternion, start.quaternion)


def test_zero_parameters_leave_residues_at_the_origin(tiny_config: ModelConfig) -> None:
    module = StructureModule(tiny_config.structure, tiny_config.evoformer.pair.channels, REFERENCE)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    channels = tiny_config.structure.channels, tiny_config.evoformer.pair.channels
    aatype = torch.arange(LENGTH)
    _, positions, mask = module(
        torch.zeros(LENGTH, channels[0]), torch.zeros(LENGTH, LENGTH, channels[1]), aatype, None
    )
    assert not positions[:, 1].any()  # CA
    assert mask[:, 1].all()
    assert torch.allclose(positions[:, 2].norm(dim=-1), torch.full((LENGTH,), 1.525), atol=0.02)  # C


def test_random_parameters_are_not_constant(tiny_config: ModelConfig) -> None:
    assert all(array.std() > 0 for array in random_parameters(tiny_config).values() if array.size > 1)


def test_memory_of_point_attention_is_as_planned() -> None:
    config, length = StructureConfig(), 128
    attention = InvariantPointAttention(config, 8)
    fill(attention)
    single, pair = torch.randn(length, config.channels), torch.randn(length, length, 8)
    logits, frames = attention.pair_logits(pair), random_rigid(length)
    planned = 4 * length**2 * point_attention_elements(config)
    with chunk_budget(2**40):
        peak = peak_bytes(lambda: attention(single, pair, logits, frames, None))
    # the pair representation, which is not counted, is small here
    assert 0.75 * planned < peak < planned


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_have_the_size_planned_for_the_trunk(dtype: torch.dtype) -> None:
    config, length = StructureConfig(), 128
    module = StructureModule(config, 8, REFERENCE)
    fill(module)
    single, pair = torch.randn(length, config.channels), torch.randn(length, length, 8).to(dtype)
    aatype = torch.zeros(length, dtype=torch.long)
    chunk = length**2 * point_attention_elements(config) // 4
    with chunk_budget(chunk):
        peak = peak_bytes(lambda: module(single, pair, aatype, None))
    fixed = 4 * length**2 * (8 + 2 * config.heads)
    assert 0.75 * pair.element_size() * chunk < peak - fixed < 1.2 * pair.element_size() * chunk


def fill(module: torch.nn.Module) -> None:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.05)


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the peak of allocated memory during a call, in bytes."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        call()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return int(np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]).max())
