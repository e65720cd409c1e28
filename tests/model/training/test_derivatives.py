"""Gradients of the network equal finite differences in float64."""

from dataclasses import replace

import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig
from model.checkpoints.alphafold2 import build_network
from model.training.alphafold2.features import network_features
from model.training.alphafold2.network import initial_recycled_batch, run_network
from model.training.data.data import ChainSet, Split
from model.training.data.sampling import Sampler, TrainingSampleSettings
from model.training.runtime.execution import Execution

# of the parameters, relative to their own size; the error of central differences is of its square
STEP = 1e-6


def test_gradients_equal_finite_differences(
    network_config: ModelConfig, chains: ChainSet, split: Split, everything_in_float64: None
) -> None:
    """Check each part of the network along one random direction of its parameters.

    One iteration of the structure module, since gradients do not flow through the rotations of earlier ones.
    """
    config = replace(network_config, structure=replace(network_config.structure, iterations=1))
    network = build_network(config, random_parameters(config)).double().requires_grad_(True)
    settings = TrainingSampleSettings(msa_rows=5, extra_rows=3, template_rate=1.0, few_clusters_rate=1.0)
    arrays = Sampler(chains, split, settings, seed=5).batch(0, 2, crop=20)
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    features = network_features(batch, torch.float64)
    recycled = initial_recycled_batch(network, features, torch.float64)
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, torch.Tensor] = {}

    def objective() -> torch.Tensor:
        output = run_network(network, features, recycled, torch.zeros(()), Execution(torch.float64))
        values = {"atoms": output.structure.atom14, **output.logits}
        # penalties of masks leave rows of padding without digits
        values["masked_msa"] = values["masked_msa"] * features["msa_mask"][..., None]
        for name, value in values.items():
            if name not in weights:
                weights[name] = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        return torch.stack([(weights[name] * value).mean() for name, value in values.items()]).sum()

    objective().backward()
    parts: dict[str, list[torch.nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        parts.setdefault(".".join(name.split(".")[:3]), []).append(parameter)
    assert len(parts) > 20
    for name, parameters in parts.items():
        directions = [
            torch.randn(x.shape, generator=generator, dtype=torch.float64) * x.detach().std(correction=0)
            for x in parameters
        ]
        expected = sum(float((x.grad * d).sum()) for x, d in zip(parameters, directions, strict=True))
        values = []
        with torch.no_grad():
            for step in (STEP, -2 * STEP):
                for x, d in zip(parameters, directions, strict=True):
                    x += step * d
                values.append(float(objective()))
            for x, d in zip(parameters, directions, strict=True):
                x += STEP * d
        assert (values[0] - values[1]) / (2 * STEP) == pytest.approx(expected, rel=1e-6, abs=1e-10), name
