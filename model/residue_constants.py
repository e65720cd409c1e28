"""Geometry of residues, and the lookup tables derived from it and from `msa.base.residues`.

Residue codes 0 to 19 are the amino acids in RESTYPES order, 20 is unknown. `atom37` numbers atoms by name
across all residue types; `atom14` numbers the heavy atoms, 14 at most, of one residue type.
"""

from functools import cache

import numpy as np

from msa.base.residues import ATOM14_NAMES, ATOM_ORDER, ELEMENTS, RESTYPE_NAMES, RIGID_GROUPS, UNKNOWN

N, CA, C, CB, OXYGEN = (ATOM_ORDER[name] for name in ("N", "CA", "C", "CB", "O"))

# The four atoms of each chi angle, chi1 to chi4. Chi5 of arginine is always near 0 and not modelled.
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

# Symmetric chi angles: a rotation by π only swaps atom names. (residue, 0-based chi)
PI_PERIODIC_CHI = (("ASP", 1), ("GLU", 2), ("PHE", 1), ("TYR", 1))

# Limits of bond lengths, angles and clashes: supplement section 1.9.11, values of DeepMind's code
TOLERANCE_FACTOR = 12.0  # standard deviations
OVERLAP_TOLERANCE = 1.5  # Å
# C-N length and its standard deviation before another residue and before proline, Å
BOND_LENGTH, BOND_DEVIATION = (1.329, 1.341), (0.014, 0.016)
# cosines of the angles CA-C-N and C-N-CA between residues
CA_C_N, C_N_CA = -0.4473, -0.5203
# the first is a deviation of the bond length, which the published code uses for this angle
CA_C_N_DEVIATION, C_N_CA_DEVIATION = 0.014, 0.0353
VDW_RADIUS = {"C": 1.7, "N": 1.55, "O": 1.52, "S": 1.8}  # Å


@cache
def atom37_to_atom14() -> np.ndarray:
    """Return the atom14 slot of each atom type, 0 if the residue lacks the atom: [21, 37] int64."""
    table = np.zeros((21, 37), np.int64)
    for code, name in enumerate(RESTYPE_NAMES):
        for slot, atom in enumerate(ATOM14_NAMES[name]):
            table[code, ATOM_ORDER[atom]] = slot
    return table


@cache
def atom14_mask() -> np.ndarray:
    """Return the mask of occupied atom14 slots of each residue type: [21, 14] float32."""
    return np.array([np.arange(14) < len(ATOM14_NAMES[name]) for name in RESTYPE_NAMES], np.float32)


@cache
def atom37_mask() -> np.ndarray:
    """Return the mask of existing atoms of each residue type: [21, 37] float32."""
    table = np.zeros((21, 37), np.float32)
    for code, name in enumerate(RESTYPE_NAMES):
        table[code, [ATOM_ORDER[atom] for atom in ATOM14_NAMES[name]]] = 1.0
    return table


@cache
def vdw_radii() -> np.ndarray:
    """Return the van der Waals radius of each atom, Å, 0 in empty slots, [21, 14] float32."""
    table = np.zeros((21, 14), np.float32)
    for code, name in enumerate(RESTYPE_NAMES):
        for slot, atom in enumerate(ATOM14_NAMES[name]):
            table[code, slot] = VDW_RADIUS[ELEMENTS[atom]]
    return table


@cache
def atom14_rigid_group() -> np.ndarray:
    """Return the rigid group of each atom14 slot, 0 if the slot is empty: [21, 14] int64."""
    table = np.zeros((21, 14), np.int64)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for slot, (group, _) in enumerate(RIGID_GROUPS[name].values()):
            table[code, slot] = group
    return table


@cache
def atom14_positions() -> np.ndarray:
    """Return the position of each atom14 slot in its rigid group, Å: [21, 14, 3] float32."""
    table = np.zeros((21, 14, 3), np.float32)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for slot, (_, position) in enumerate(RIGID_GROUPS[name].values()):
            table[code, slot] = position
    return table


@cache
def chi_atoms() -> np.ndarray:
    """Return the four atom37 indices of each chi angle, 0 if there is none: [21, 4, 4] int64."""
    table = np.zeros((21, 4, 4), np.int64)
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        for chi, atoms in enumerate(CHI_ANGLES[name]):
            table[code, chi] = [ATOM_ORDER[atom] for atom in atoms]
    return table


@cache
def chi_mask() -> np.ndarray:
    """Return the mask of existing chi angles of each residue type: [21, 4] float32."""
    counts = [len(CHI_ANGLES.get(name, ())) for name in RESTYPE_NAMES]
    return np.array([np.arange(4) < count for count in counts], np.float32)


@cache
def chi_pi_periodic() -> np.ndarray:
    """Return the mask of chi angles whose rotation by π only swaps atom names: [21, 4] float32."""
    table = np.zeros((21, 4), np.float32)
    for name, chi in PI_PERIODIC_CHI:
        table[RESTYPE_NAMES.index(name), chi] = 1.0
    return table


@cache
def default_frames() -> np.ndarray:
    """Return the frame of each rigid group at torsion angle 0, relative to its parent group.

    The parent of chi2 to chi4 is the previous chi group; that of all others is the backbone. Groups that a
    residue type lacks are zero, as in DeepMind's tables.

    Returns:
        [21, 8, 3, 4] float32: rotations, and translations in Å as the last column.
    """
    rotations = np.zeros((21, 8, 3, 3))
    rotations[:, :2] = np.eye(3)
    translations = np.zeros((21, 8, 3))
    for code, name in enumerate(RESTYPE_NAMES[:UNKNOWN]):
        positions = {atom: np.array(position) for atom, (_, position) in RIGID_GROUPS[name].items()}
        axes = {
            2: (positions["N"] - positions["CA"], np.array([1.0, 0.0, 0.0]), positions["N"]),
            3: (positions["C"] - positions["CA"], positions["CA"] - positions["N"], positions["C"]),
        }
        for chi, (first, start, end, _) in enumerate(CHI_ANGLES[name]):
            if chi == 0:
                axes[4] = (
                    positions[end] - positions[start],
                    positions[first] - positions[start],
                    positions[end],
                )
            else:
                # the axis starts at the parent's origin, and the parent's torsion atom is in the xy plane
                axes[4 + chi] = (positions[end], np.array([-1.0, 0.0, 0.0]), positions[end])
        for group, (x, y, origin) in axes.items():
            rotations[code, group] = _frame(x, y)
            translations[code, group] = origin
    return np.concatenate([rotations, translations[..., None]], axis=-1).astype(np.float32)


def _frame(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the rotation whose columns are x, y orthogonalised to x, and their cross product."""
    first = x / np.linalg.norm(x)
    second = y - (y @ first) * first
    second /= np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)], axis=1)
