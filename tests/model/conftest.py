"""Fixtures: a small network and random features."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import build_network
from tests.networks import one_torch_thread, tiny_multimer, tiny_network


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, which is fastest for small tensors."""
    with one_torch_thread():
        yield


def _load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def parity(root: Path) -> ModuleType:
    """Return benchmarks/parity.py as a module."""
    return _load_module(root / "benchmarks" / "parity.py")


@pytest.fixture(scope="session")
def parity_data() -> ModuleType:
    """Return parity_data.py as a module."""
    return _load_module(Path(__file__).parent / "parity_data.py")


@pytest.fixture(scope="session")
def tiny_config() -> ModelConfig:
    """Return a network with all parts, including templates, and few channels."""
    return tiny_network()


@pytest.fixture(scope="session")
def tiny_multimer_config() -> ModelConfig:
    """Return a multimer network with few channels."""
    return tiny_multimer()


@pytest.fixture(scope="session")
def tiny(tiny_config: ModelConfig) -> AlphaFold:
    """Return the tiny network with random parameters."""
    return build_network(tiny_config, random_parameters(tiny_config))


class FeatureMaker:
    """A callable that returns random features with a leading axis of iterations."""

    def __call__(
        self, residues: int = 9, rows: int = 4, extra: int = 5, templates: int = 0, iterations: int = 3
    ) -> dict[str, np.ndarray]:
        random = np.random.default_rng(residues)
        aatype = random.integers(0, 20, residues)
        features: dict[str, np.ndarray] = {
            "aatype": np.tile(aatype, (iterations, 1)),
            "residue_index": np.tile(np.arange(residues), (iterations, 1)),
            "seq_mask": np.ones((iterations, residues), np.float32),
            "target_feat": np.tile(np.eye(22, dtype=np.float32)[aatype + 1], (iterations, 1, 1)),
            "msa_feat": random.standard_normal((iterations, rows, residues, 49)).astype(np.float32),
            "msa_mask": np.ones((iterations, rows, residues), np.float32),
            "extra_msa": random.integers(0, 23, (iterations, extra, residues)),
            "extra_msa_mask": np.ones((iterations, extra, residues), np.float32),
            "extra_has_deletion": random.integers(0, 2, (iterations, extra, residues)).astype(np.float32),
            "extra_deletion_value": random.random((iterations, extra, residues), np.float32),
        }
        if templates:
            shape = (iterations, templates, residues)
            features |= {
                "template_aatype": random.integers(0, 22, shape),
                "template_all_atom_positions": 5 * random.standard_normal((*shape, 37, 3)).astype(np.float32),
                "template_all_atom_masks": random.integers(0, 2, (*shape, 37)).astype(np.float32),
                "template_mask": np.ones((iterations, templates), np.float32),
            }
        return features


@pytest.fixture(scope="session")
def make_features() -> FeatureMaker:
    """Return a callable that returns random features of the given sizes."""
    return FeatureMaker()


@pytest.fixture
def complex_features() -> dict[str, np.ndarray]:
    """Return features of a complex A + B + B, with one template of four slots and 15 alignment rows."""
    random = np.random.default_rng(5)
    lengths = (5, 3, 3)
    residues, rows = sum(lengths), 15
    chains = np.repeat([0, 1, 2], lengths)
    msa = random.integers(0, 22, (rows, residues))
    msa[0] = random.integers(0, 20, residues)
    positions = np.zeros((4, residues, 37, 3), np.float32)
    positions[0] = 5 * random.standard_normal((residues, 37, 3))
    atoms = np.zeros((4, residues, 37), np.float32)
    atoms[0] = random.integers(0, 2, (residues, 37))
    atoms[0, :, :5] = 1  # backbone and CB
    types = np.zeros((4, residues), np.int64)
    types[0] = random.integers(0, 20, residues)
    return {
        "aatype": msa[0].astype(np.int32),
        "residue_index": np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
        "asym_id": (chains + 1).astype(np.float32),
        "entity_id": np.array([1, 2, 2], np.float32)[chains],
        "sym_id": np.array([1, 1, 2], np.float32)[chains],
        "msa": msa.astype(np.int32),
        "deletion_matrix": random.integers(0, 4, (rows, residues)).astype(np.float32),
        "template_aatype": types,
        "template_all_atom_positions": positions,
        "template_all_atom_mask": atoms,
    }
