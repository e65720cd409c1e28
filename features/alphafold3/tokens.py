"""Features of tokens: classes, indices and bonds."""

import numpy as np

from features.assembly.atoms import Atoms
from features.assembly.job import Polymer
from features.assembly.tokens import Tokens
from features.chemistry.residue_classes import CLASSES, MoleculeKind, residue_class


def token_features(atoms: Atoms, tokens: Tokens) -> dict[str, np.ndarray]:
    """Return the features of a job's tokens; see `msa.base.network_inputs.ALL_ATOM`."""
    start = tokens.start
    kind = atoms.kind[start]
    classes = np.array([residue_class(code) for code in atoms.code[start]])
    cyclic = np.array(
        [isinstance(chain.entity, Polymer) and chain.entity.is_cyclic for chain in atoms.chains], bool
    )
    bonds = np.zeros((len(tokens), len(tokens)), np.int32)
    bonds[tokens.bonds[:, 0], tokens.bonds[:, 1]] = 1
    bonds[tokens.bonds[:, 1], tokens.bonds[:, 0]] = 1
    return {
        "token_index": np.arange(len(tokens), dtype=np.int32),
        "restype": one_hot(classes, CLASSES),
        **{f"is_{each.name.lower()}": (kind == each).astype(np.int32) for each in MoleculeKind},
        "is_atomized": tokens.is_atomized.astype(np.int32),
        "token_mask": np.ones(len(tokens), np.float32),
        "num_atoms_per_token": tokens.count.astype(np.int32),
        "start_atom_index": start.astype(np.int32),
        "atom_mask": np.ones(len(atoms), np.float32),
        "residue_index": atoms.residue[start].astype(np.int32),
        "asym_id": tokens.chain.astype(np.int32),
        "entity_id": tokens.entity.astype(np.int32),
        "sym_id": tokens.copy.astype(np.int32),
        "token_bonds": bonds,
        "atom_to_token_index": tokens.atom_token.astype(np.int32),
        "cyclic_mask": cyclic[atoms.chain[start]],
    }


def one_hot(classes: np.ndarray, count: int) -> np.ndarray:
    """Return int8 [*, count] with a one at the class of each element, 0 to `count` - 1."""
    return np.eye(count, dtype=np.int8)[classes]
