"""Features of atoms: reference conformers, elements, charges and names."""

from collections.abc import Sequence

import numpy as np

from features.alphafold3.tokens import one_hot
from features.assembly.atoms import Atoms
from features.chemistry.components import ELEMENT_CLASSES, element_class
from features.chemistry.conformers import Conformer

_NAME_LENGTH = 4
_FIRST_CHARACTER, _CHARACTERS = 32, 64


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
