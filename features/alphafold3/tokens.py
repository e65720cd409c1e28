"""Features of tokens (classes, indices, bonds) and of atoms (reference conformers, elements, names)."""

from collections.abc import Sequence

import numpy as np

from features.assembly.atoms import Atoms
from features.assembly.job import Polymer
from features.assembly.tokens import Tokens
from features.chemistry.components import ELEMENT_CLASSES, element_class
from features.chemistry.conformers import Conformer
from features.chemistry.residue_classes import CLASSES, MoleculeKind, residue_class

_NAME_LENGTH = 4
_FIRST_CHARACTER, _CHARACTERS = 32, 64


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


def reference_features(
    atoms: Atoms, conformers: Sequence[Conformer], rotations: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return the features of a job's atoms; see `msa.base.network_inputs.ALL_ATOM`."""
    positions, masks, charges = [], [], []
    for molecule, conformer in zip(atoms.molecules, conformers, strict=True):
        mask = conformer.mask[molecule.kept]
        positions.append(move_randomly(conformer.positions[molecule.kept], mask, rotations))
        masks.append(mask)
        charges.append(conformer.charges[molecule.kept])
    element = np.array([element_class(symbol) for symbol in atoms.element])
    return {
        "ref_pos": np.concatenate(positions),
        "ref_mask": np.concatenate(masks).astype(np.int32),
        "ref_element": one_hot(element, ELEMENT_CLASSES),
        "ref_charge": np.concatenate(charges).astype(np.float32),
        "ref_atom_name_chars": one_hot(_name_characters(atoms.name), _CHARACTERS),
        "ref_space_uid": atoms.molecule.astype(np.int32),
    }


def move_randomly(positions: np.ndarray, mask: np.ndarray, source: np.random.Generator) -> np.ndarray:
    """Return a conformer centred, rotated and translated at random (AlphaFold 3 supplement, algorithm 19).

    Args:
        positions: float32 [A, 3] in Å.
        mask: bool [A]; other atoms stay at the origin.
        source: random numbers: a quaternion and a translation from normal distributions.
    """
    quaternion = source.standard_normal(4)
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    translation = source.standard_normal(3)
    if not mask.any():
        return np.zeros_like(positions)
    centred = positions - positions[mask].mean(0, dtype=np.float64)
    moved = centred @ rotation.T + translation
    return np.where(mask[:, None], moved, 0).astype(np.float32)


def _name_characters(names: np.ndarray) -> np.ndarray:
    """Return the first four characters of atom names as numbers from 0 to 63: int [A, 4]."""
    padded = "".join(name.upper()[:_NAME_LENGTH].ljust(_NAME_LENGTH) for name in names)
    codes = np.array([ord(character) for character in padded]) - _FIRST_CHARACTER
    return np.clip(codes, 0, _CHARACTERS - 1).reshape(-1, _NAME_LENGTH)
