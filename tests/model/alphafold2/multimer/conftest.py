"""Fixtures: a small multimer network."""

import pytest

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import build_network


@pytest.fixture(scope="session")
def tiny_multimer(tiny_multimer_config: ModelConfig) -> AlphaFold:
    """Return the small network with random parameters."""
    return build_network(tiny_multimer_config, random_parameters(tiny_multimer_config))
