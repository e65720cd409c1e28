"""Small chains, networks and settings for the tests of training."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from model.alphafold2.modules.config import ModelConfig
from model.training.alphafold2.features import load_tables
from model.training.data.data import ChainSet, Split
from model.training.data.sampling import TrainingSampleSettings
from model.training.runtime.settings import OptimizerSettings, Phase, TrainingSettings
from tests.model.training.helices import helix_chains
from tests.networks import tiny_network

CHAINS, LENGTH = 6, 40


@pytest.fixture(autouse=True)
def tables_that_autograd_can_save() -> None:
    """Replace the lookup tables that tests of inference have left."""
    load_tables(torch.device("cpu"))


@pytest.fixture(scope="session")
def chains() -> ChainSet:
    """Return six full-atom helices with alignments of four rows; each is a template of the next one."""
    return helix_chains(CHAINS, LENGTH)


@pytest.fixture(scope="session")
def split() -> Split:
    """Return four chains to train on, one in each held-out set."""
    index = np.arange(CHAINS)
    return Split(index[:4], index[:0], index[4:5], index[5:])


@pytest.fixture(scope="session")
def network_config() -> ModelConfig:
    """Return a network with every part and few channels."""
    return tiny_network()


@pytest.fixture(scope="session")
def settings(network_config: ModelConfig) -> TrainingSettings:
    """Return a run of six steps without compilation."""
    return TrainingSettings(
        network=network_config,
        batch=4,
        phases=(Phase(steps=6, crop=24, micro_batch=2),),
        sampling=TrainingSampleSettings(msa_rows=6, extra_rows=3),
        optimizer=OptimizerSettings(warmup_steps=2),
        validate_every=4,
        checkpoint_every=0,
        compile=False,
        workers=0,
    )


@pytest.fixture
def everything_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute in float64 where the network says float32, also in tables that are made once per process."""
    clear_tables()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch, "float32", torch.float64)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float)
    clear_tables()


def clear_tables() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("model.")]
    for function in (value for module in modules for value in vars(module).values()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()
