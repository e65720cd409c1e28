"""Made-up training data: helices with alignments, each of which is a template of the next one."""

import numpy as np

from model.training.data.data import ChainSet
from msa.base.residues import ATOM14_NAMES, RESTYPE_NAMES


def helix_atoms(aatype: np.ndarray) -> np.ndarray:
    """Return atom14 positions [N, 14, 3] in Å: a helix of CA atoms, the other atoms near them."""
    angle = np.deg2rad(100.0) * np.arange(len(aatype))
    alpha = np.stack([2.3 * np.cos(angle), 2.3 * np.sin(angle), 1.5 * np.arange(len(aatype))], axis=1)
    spread = np.random.default_rng(0).standard_normal((14, 3))
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    spread[1] = 0.0
    return alpha[:, None] + 1.5 * spread


def helix_chains(count: int, length: int) -> ChainSet:
    """Return full-atom helices of random residues with alignments of four rows.

    Args:
        count: number of chains.
        length: residues of each chain, at most 200, because positions are 16-bit integers in 0.01 Å.
    """
    random = np.random.default_rng(1)
    aatype = random.integers(0, 20, count * length).astype(np.uint8)
    atoms = np.concatenate([helix_atoms(part) for part in aatype.reshape(count, length)])
    present = np.array([len(ATOM14_NAMES[name]) for name in RESTYPE_NAMES])[aatype]
    rows = random.integers(0, 22, (count, 4, length)).astype(np.uint8)
    rows[:, 0] = aatype.reshape(count, length)
    steps = np.arange(length, dtype=np.int16)
    return ChainSet(
        ids=tuple(f"chain_{index}" for index in range(count)),
        num_full_atom=count,
        chain_offset=np.arange(count + 1) * length,
        aatype=aatype,
        atom14=np.round(atoms * 100).astype(np.int16),
        atom_bits=((1 << present) - 1).astype(np.int16),
        break_before=np.zeros(count * length, np.uint8),
        group=np.arange(count, dtype=np.int32),
        cluster_size=np.ones(count, np.int32),
        row_offset=np.arange(count) * 4 * length,
        row_count=np.full(count, 4, np.int32),
        tokens=rows.reshape(-1),
        hit_offset=np.arange(count + 1),
        hit_target=((np.arange(count) + 1) % count).astype(np.int32),
        hit_identity=np.full(count, 0.3, np.float32),
        hit_evalue=np.full(count, 1e-5, np.float32),
        column_offset=np.arange(count + 1) * length,
        columns=np.tile(np.stack([steps, steps], axis=1), (count, 1)),
    )
