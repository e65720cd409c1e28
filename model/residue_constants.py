"""Residue and atom types, their numbering, and the lookup tables the network needs.

Residue codes 0 to 19 are the amino acids in RESTYPES order, 20 is unknown. `atom37` numbers atoms by name
over all residues, `atom14` numbers the at most 14 heavy atoms of one residue type.
"""

from functools import cache

import numpy as np

from model.ideal_geometry import RIGID_GROUPS

RESTYPES = "ARNDCQEGHILKMFPSTWYV"
UNKNOWN = 20

# residue names by code; the last one is the unknown residue
RESTYPE_NAMES = [*RIGID_GROUPS, "UNK"]

_ATOM37 = """
    N CA C CB O CG CG1 CG2 OG OG1 SG CD CD1 CD2 ND1 ND2 OD1 OD2 SD
    CE CE1 CE2 CE3 NE NE1 NE2 OE1 OE2 CH2 NH1 NH2 OH CZ CZ2 CZ3 NZ OXT
"""
ATOM_TYPES = _ATOM37.split()
ATOM_ORDER = {name: index for index, name in enumerate(ATOM_TYPES)}
N, CA, C, CB, OXYGEN = (ATOM_ORDER[name] for name in ("N", "CA", "C", "CB", "O"))

# The four atoms of each chi angle, chi1 to chi4; chi5 of arginine is always near 0 and not modelled.
_CHI = {
    "ARG": "N-CA-CB-CG CA-CB-CG-CD CB-CG-CD-NE CG-CD-NE-CZ",
    "ASN": "N-CA-CB-CG CA-CB-CG-OD1",
    "ASP": "N-CA-CB-CG CA-CB-CG-OD1",
    "CYS": "N-CA-CB-SG",
    "GLN": "N-CA-CB-CG CA-CB-CG-CD CB-CG-CD-OE1",
    "GLU": "N-CA-CB-CG CA-CB-CG-CD CB-CG-CD-OE1",
    "HIS": "N-CA-CB-CG CA-CB-CG-ND1",
    "ILE": "N-CA-CB-CG1 CA-CB-CG1-CD1",
    "LEU": "N-CA-CB-CG CA-CB-CG-CD1",
    "LYS": "N-CA-CB-CG CA-CB-CG-CD CB-CG-CD-CE CG-CD-CE-NZ",
    "MET": "N-CA-CB-CG CA-CB-CG-SD CB-CG-SD-CE",
    "PHE": "N-CA-CB-CG CA-CB-CG-CD1",
    "PRO": "N-CA-CB-CG CA-CB-CG-CD",
    "SER": "N-CA-CB-OG",
    "THR": "N-CA-CB-OG1",
    "TRP": "N-CA-CB-CG CA-CB-CG-CD1",
    "TYR": "N-CA-CB-CG CA-CB-CG-CD1",
    "VAL": "N-CA-CB-CG1",
}
CHI_ANGLES = {name: [tuple(chi.split("-")) for chi in _CHI.get(name, "").split()] for name in RIGID_GROUPS}

# Chi angles whose last atom has a twin: turning them by π changes names only. (residue, 0-based chi)
PI_PERIODIC_CHI = (("ASP", 1), ("GLU", 2), ("PHE", 1), ("TYR", 1))

# `RIGID_GROUPS` lists a residue's atoms in atom14 order
ATOM14_NAMES = {name: [*atoms] for name, atoms in RIGID_GROUPS.items()} | {"UNK": []}


@cache
def atom14_to_atom37() -> np.ndarray:
    """[21, 14] int64: the atom37 index of each atom14 slot, 0 where the slot is empty."""
    table = np.zeros((21, 14), np.int64)
    for code, name in enumerate(RESTYPE_NAMES):
        for slot, atom in enumerate(ATOM14_NAMES[name]):
            table[code, slot] = ATOM_ORDER[atom]
    return table


@cache
def atom37_to_atom14() -> np.ndarray:
    """[21, 37] int64: the atom14 slot of each atom type, 0 where the residue has no such atom."""
    table = np.zeros((21, 37), np.int64)
    for code, name in enumerate(RESTYPE_NAMES):
        for slot, atom in enumerate(ATOM14_NAMES[name]):
            table[code, ATOM_ORDER[atom]] = slot
    return table


@cache
def atom14_mask() -> np.ndarray:
    """[21, 14] float32: 1 where a residue type has an atom in the slot."""
    return np.array([np.arange(14) < len(ATOM14_NAMES[name]) for name in RESTYPE_NAMES], np.float32)


@cache
def atom37_mask() -> np.ndarray:
    """[21, 37] float32: 1 where a residue type has the atom."""
    table = np.zeros((21, 37), np.float32)
    for code, name in enumerate(RESTYPE_NAMES):
        table[code, [ATOM_ORDER[atom] for atom in ATOM14_NAMES[name]]] = 1.0
    return table


@cache
def atom14_rigid_group() -> np.ndarray:
    """[21, 14] int64: the rigid group of each slot, 0 where the slot is empty."""
    table = np.zeros((21, 14), np.int64)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for slot, (group, _) in enumerate(RIGID_GROUPS[name].values()):
            table[code, slot] = group
    return table


@cache
def atom14_positions() -> np.ndarray:
    """[21, 14, 3] float32, Å: each slot's position in its rigid group."""
    table = np.zeros((21, 14, 3), np.float32)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for slot, (_, position) in enumerate(RIGID_GROUPS[name].values()):
            table[code, slot] = position
    return table


@cache
def chi_atoms() -> np.ndarray:
    """[21, 4, 4] int64: the four atom37 indices of each chi angle, 0 where there is none."""
    table = np.zeros((21, 4, 4), np.int64)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for chi, atoms in enumerate(CHI_ANGLES[name]):
            table[code, chi] = [ATOM_ORDER[atom] for atom in atoms]
    return table


@cache
def chi_mask() -> np.ndarray:
    """[21, 4] float32: 1 where a residue type has the chi angle."""
    counts = [len(CHI_ANGLES.get(name, ())) for name in RESTYPE_NAMES]
    return np.array([np.arange(4) < count for count in counts], np.float32)


@cache
def chi_pi_periodic() -> np.ndarray:
    """[21, 4] float32: 1 where turning the chi angle by π changes atom names only."""
    table = np.zeros((21, 4), np.float32)
    for name, chi in PI_PERIODIC_CHI:
        table[RESTYPE_NAMES.index(name), chi] = 1.0
    return table


@cache
def default_frames() -> np.ndarray:
    """Each rigid group's frame at torsion 0 in its parent group.

    The parent is the backbone, except that chi2 to chi4 hang on the chi before. Groups that a residue type
    lacks have zeros, as in DeepMind's tables.

    Returns:
        [21, 8, 3, 4] float32: rotations, and translations in Å as the last column.
    """
    rotations = np.zeros((21, 8, 3, 3))
    rotations[:, :2] = np.eye(3)
    translations = np.zeros((21, 8, 3))
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        at = {atom: np.array(position) for atom, (_, position) in RIGID_GROUPS[name].items()}
        axes = {
            2: (at["N"] - at["CA"], np.array([1.0, 0.0, 0.0]), at["N"]),
            3: (at["C"] - at["CA"], at["CA"] - at["N"], at["C"]),
        }
        for chi, (first, start, end, _) in enumerate(CHI_ANGLES[name]):
            if chi == 0:
                axes[4] = (at[end] - at[start], at[first] - at[start], at[end])
            else:
                # the axis starts at the parent's origin, and the parent's torsion atom lies in the xy plane
                axes[4 + chi] = (at[end], np.array([-1.0, 0.0, 0.0]), at[end])
        for group, (x, y, origin) in axes.items():
            rotations[code, group] = _frame(x, y)
            translations[code, group] = origin
    return np.concatenate([rotations, translations[..., None]], axis=-1).astype(np.float32)


def _frame(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rotation whose columns are x, y made orthogonal to it, and their cross product."""
    first = x / np.linalg.norm(x)
    second = y - (y @ first) * first
    second /= np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)], axis=1)
