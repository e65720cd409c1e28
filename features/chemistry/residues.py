"""Residue codes of the features, and maps between the atom orders of `msa.base.residues`."""

import numpy as np

from msa.base.errors import InputError
from msa.base.residues import ATOM14_NAMES, ATOM_ORDER, GAP, RESTYPE_NAMES, RESTYPES, UNKNOWN

X = UNKNOWN
GLYCINE = RESTYPES.index("G")

# Codes of ASCII letters, in an alignment and in the query. In an alignment ambiguous letters follow HHblits:
# B → D, Z → E, U → C, J and O → X.
_MSA_CODE = np.full(256, X, np.int8)
_AATYPE = np.full(256, X, np.int32)
for _code, _letter in enumerate(RESTYPES):
    _MSA_CODE[ord(_letter)] = _AATYPE[ord(_letter)] = _code
for _letter, _replacement in {"B": "D", "Z": "E", "U": "C"}.items():
    _MSA_CODE[ord(_letter)] = RESTYPES.index(_replacement)
_MSA_CODE[ord("-")] = GAP

CA, CB = ATOM_ORDER["CA"], ATOM_ORDER["CB"]


def encode_msa(letters: np.ndarray) -> np.ndarray:
    """Return the codes (int8, 0 to 21) of an alignment's letters (uint8, upper case or `-`, any shape)."""
    return _MSA_CODE[letters]


def encode_query(sequence: str) -> np.ndarray:
    """Return the residue codes (int32 [R], 0 to 20) of the query; letters other than the twenty are X."""
    return _AATYPE[np.frombuffer(sequence.encode("ascii"), np.uint8)]


def decode_query(codes: np.ndarray) -> str:
    """Return the letters of residue codes (int [R], 0 to 20); the inverse of `encode_query`."""
    return np.frombuffer(f"{RESTYPES}X".encode(), np.uint8)[codes].tobytes().decode("ascii")


def check_foldable(sequence: str) -> None:
    """Check that a query has at least one of the twenty residues; the network predicts no atoms for others.

    Raises:
        InputError: no letter is one of the twenty residues.
    """
    if not np.any(encode_query(sequence) != X):
        raise InputError("the query has none of the twenty residues, so its structure would have no atoms")


def _make_atom_maps() -> dict[str, np.ndarray]:
    """Return the four atom maps by residue code [21, …]; empty slots and absent atoms map to 0."""
    exists14, to37 = np.zeros((21, 14), np.float32), np.zeros((21, 14), np.int32)
    exists37, to14 = np.zeros((21, 37), np.float32), np.zeros((21, 37), np.int32)
    for code, residue in enumerate(RESTYPE_NAMES):
        for slot, name in enumerate(ATOM14_NAMES[residue]):
            atom = ATOM_ORDER[name]
            exists14[code, slot] = exists37[code, atom] = 1
            to37[code, slot], to14[code, atom] = atom, slot
    return {
        "atom14_atom_exists": exists14,
        "atom37_atom_exists": exists37,
        "residx_atom14_to_atom37": to37,
        "residx_atom37_to_atom14": to14,
    }


_ATOM_MAPS = _make_atom_maps()


def atom_maps(aatype: np.ndarray) -> dict[str, np.ndarray]:
    """Return the existing atoms of each residue in atom14 and atom37 order, and the maps between the two.

    Args:
        aatype: int32 [R], 0 to 20.

    Returns:
        `atom14_atom_exists` float32 [R, 14], `atom37_atom_exists` float32 [R, 37],
        `residx_atom14_to_atom37` int32 [R, 14], `residx_atom37_to_atom14` int32 [R, 37].
    """
    return {name: table[aatype] for name, table in _ATOM_MAPS.items()}
