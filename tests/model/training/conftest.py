"""Small chains, networks and settings for the tests of training."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from model.config import ModelConfig
from model.residue_constants import ATOM14_NAMES, RESTYPE_NAMES
from model.training.data import ChainSet, Split
from model.training.features import load_tables
from model.training.sampling import TrainingSampleSettings
from model.training.settings import OptimizerSettings, Phase, TrainingSettings
from tests.networks import tiny_network

CHAINS, LENGTH = 6, 40


def helix_atoms(aatype: np.ndarray) -> np.ndarray:
    """Return atom14 positions [N, 14, 3] in Å: a helix of CA atoms, the other atoms near them."""
    angle = np.deg2rad(100.0) * np.arange(len(aatype))
    alpha = np.stack([2.3 * np.cos(angle), 2.3 * np.sin(angle), 1.5 * np.arange(len(aatype))], axis=1)
    spread = np.random.default_rng(0).standard_normal((14, 3))
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    spread[1] = 0.0
    return alpha[:, None] + 1.5 * spread


@pytest.fixture(autouse=True)
def tables_that_autograd_can_save() -> None:
    """Replace the lookup tables that tests of inference have left."""
    load_tables(torch.device("cpu"))


@pytest.fixture(scope="session")
def chains() -> ChainSet:
    """Return six full-atom helices with alignments of four rows; each is a template of the next one."""
    random = np.random.default_rng(1)
    aatype = random.integers(0, 20, CHAINS * LENGTH).astype(np.uint8)
    atoms = np.concatenate([helix_atoms(part) for part in aatype.reshape(CHAINS, LENGTH)])
    present = np.array([len(ATOM14_NAMES[name]) for name in RESTYPE_NAMES])[aatype]
    rows = random.integers(0, 22, (CHAINS, 4, LENGTH)).astype(np.uint8)
    rows[:, 0] = aatype.reshape(CHAINS, LENGTH)
    steps = np.arange(LENGTH, dtype=np.int16)
    return ChainSet(
        ids=tuple(f"chain_{index}" for index in range(CHAINS)),
        num_full_atom=CHAINS,
        chain_offset=np.arange(CHAINS + 1) * LENGTH,
        aatype=aatype,
        atom14=np.round(atoms * 100).astype(np.int16),
        atom_bits=((1 << present) - 1).astype(np.int16),
        break_before=np.zeros(CHAINS * LENGTH, np.uint8),
        group=np.arange(CHAINS, dtype=np.int32),
        cluster_size=np.ones(CHAINS, np.int32),
        row_offset=np.arange(CHAINS) * 4 * LENGTH,
        row_count=np.full(CHAINS, 4, np.int32),
        tokens=rows.reshape(-1),
        hit_offset=np.arange(CHAINS + 1),
        hit_target=((np.arange(CHAINS) + 1) % CHAINS).astype(np.int32),
        hit_identity=np.full(CHAINS, 0.3, np.float32),
        hit_evalue=np.full(CHAINS, 1e-5, np.float32),
        column_offset=np.arange(CHAINS + 1) * LENGTH,
        columns=np.tile(np.stack([steps, steps], axis=1), (CHAINS, 1)),
    )


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
