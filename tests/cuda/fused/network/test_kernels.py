"""A whole network on GPU kernels and on the reference, both compared with float32."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig, MsaConfig, PairConfig, StackConfig, StructureConfig
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network
from model.layers.graphs import SharedModule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RESIDUES = 11


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    """Return a configuration of few channels, in numbers that the kernels support."""
    pair = PairConfig(
        channels=16, multiplication_channels=16, attention_heads=2, attention_channels=8, transition_factor=2
    )
    msa = MsaConfig(
        channels=32, attention_heads=2, attention_channels=8, outer_channels=8, transition_factor=2
    )
    extra = replace(msa, channels=8, global_column_attention=True)
    structure = StructureConfig(channels=24, iterations=2, heads=2, scalar_channels=4)
    return ModelConfig("small", StackConfig(2, msa, pair), StackConfig(1, extra, pair), structure=structure)


def test_pass_is_as_accurate_as_the_reference(config: ModelConfig, dtype: torch.dtype) -> None:
    random = np.random.default_rng(0)
    aatype = random.integers(0, 20, RESIDUES)

    arrays = {
        "aatype": aatype[None],
        "residue_index": np.arange(RESIDUES)[None],
        "seq_mask": np.ones((1, RESIDUES), np.float32),
        "target_feat": np.eye(22, dtype=np.float32)[aatype + 1][None],
        "msa_feat": random.random((1, 5, RESIDUES, 49), np.float32),
        "msa_mask": np.ones((1, 5, RESIDUES), np.float32),
        "extra_msa": random.integers(0, 22, (1, 7, RESIDUES)),
        "extra_msa_mask": (random.random((1, 7, RESIDUES)) > 0.2).astype(np.float32),
        "extra_has_deletion": np.zeros((1, 7, RESIDUES), np.float32),
        "extra_deletion_value": np.zeros((1, 7, RESIDUES), np.float32),
    }
    features = feature_tensors(arrays, 0, torch.device(DEVICE))
    parameters = random_parameters(config)

    def results(kernels: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        network = build_network(config, parameters, DEVICE, dtype, kernels)
        with torch.inference_mode():
            return network(features)

    exact, plain, fused = (
        results("reference", torch.float32),
        results("reference", dtype),
        results("fused", dtype),
    )
    for name in ("representations/pair", "representations/msa", "representations/structure_module"):
        scale = exact[name].norm()
        allowed = 2 * (plain[name].float() - exact[name]).norm() / scale + 1e-5
        assert not torch.equal(fused[name], plain[name])
        assert (fused[name].float() - exact[name]).norm() / scale <= allowed


@torch.inference_mode()
def test_shared_module_computes_each_block(config: ModelConfig) -> None:
    network = build_network(config, random_parameters(config), DEVICE, kernels="fused")
    blocks = list(network.evoformer.evoformer_iteration)
    msa_channels, pair_channels = config.evoformer.msa.channels, config.evoformer.pair.channels

    def updated(block: torch.nn.Module) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        shapes = (3, 5, msa_channels), (5, 5, pair_channels)
        msa, pair = (torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes)
        block(msa, pair, None, None)
        return torch.cat([msa.flatten(), pair.flatten()])

    expected = [updated(block) for block in blocks]
    assert not torch.equal(*expected)
    shared = SharedModule(blocks)
    for index in (1, 0, 1):
        assert shared.load(index)
        assert torch.equal(updated(shared.module), expected[index])
        assert shared.is_prepared()
