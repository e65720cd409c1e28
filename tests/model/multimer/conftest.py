"""Fixtures: a small multimer network and random features of a complex."""

import numpy as np
import pytest

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.parameters import random_parameters

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def tiny_multimer(tiny_multimer_config: ModelConfig) -> AlphaFold:
    """Return the small network with random parameters."""
    return AlphaFold.from_parameters(tiny_multimer_config, random_parameters(tiny_multimer_config))


@pytest.fixture
def complex_features() -> Arrays:
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
