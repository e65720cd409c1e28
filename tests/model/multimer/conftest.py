"""Fixtures: a small multimer network."""

import pytest

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.parameters import random_parameters


@pytest.fixture(scope="session")
def tiny_multimer(tiny_multimer_config: ModelConfig) -> AlphaFold:
    """Return the small network with random parameters."""
    return AlphaFold.from_parameters(tiny_multimer_config, random_parameters(tiny_multimer_config))
