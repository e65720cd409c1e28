"""Residue types, atom types, idealised geometry, and the lookup tables derived from them.

Residue codes 0 to 19 are the amino acids in RESTYPES order, 20 is unknown. `atom37` numbers atoms by name
across all residue types; `atom14` numbers the heavy atoms, 14 at most, of one residue type.
"""

from functools import cache

import numpy as np

RESTYPES = "ARNDCQEGHILKMFPSTWYV"
UNKNOWN = 20

Point = tuple[float, float, float]

# Rigid group and idealised position of each heavy atom, in atom14 order. Groups: 0 backbone, 1 pre-omega (no
# heavy atom), 2 phi (none), 3 psi, 4 to 7 chi1 to chi4. Positions (Å) are relative to the end atom of the
# group's rotation axis, which is the x axis; the atom that defines the torsion is in the xy plane with y > 0.
# Values: Jumper et al., Nature 596, 583 (2021), supplement section 1.8.4, as published with AlphaFold2.
RIGID_GROUPS: dict[str, dict[str, tuple[int, Point]]] = {
    "ALA": {
        "N": (0, (-0.525, 1.363, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.627, 1.062, 0.0)),
        "CB": (0, (-0.529, -0.774, -1.205)),
    },
    "ARG": {
        "N": (0, (-0.524, 1.362, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.524, -0.778, -1.209)),
        "CG": (4, (0.616, 1.390, 0.0)),
        "CD": (5, (0.564, 1.414, 0.0)),
        "NE": (6, (0.539, 1.357, 0.0)),
        "CZ": (7, (0.758, 1.093, 0.0)),
        "NH1": (7, (0.206, 2.301, 0.0)),
        "NH2": (7, (2.078, 0.978, 0.0)),
    },
    "ASN": {
        "N": (0, (-0.536, 1.357, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.625, 1.062, 0.0)),
        "CB": (0, (-0.531, -0.787, -1.200)),
        "CG": (4, (0.584, 1.399, 0.0)),
        "OD1": (5, (0.633, 1.059, 0.0)),
        "ND2": (5, (0.593, -1.188, 0.001)),
    },
    "ASP": {
        "N": (0, (-0.525, 1.362, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.527, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.526, -0.778, -1.208)),
        "CG": (4, (0.593, 1.398, 0.0)),
        "OD1": (5, (0.610, 1.091, 0.0)),
        "OD2": (5, (0.592, -1.101, -0.003)),
    },
    "CYS": {
        "N": (0, (-0.522, 1.362, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.524, 0.0, 0.0)),
        "O": (3, (0.625, 1.062, 0.0)),
        "CB": (0, (-0.519, -0.773, -1.212)),
        "SG": (4, (0.728, 1.653, 0.0)),
    },
    "GLN": {
        "N": (0, (-0.526, 1.361, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.525, -0.779, -1.207)),
        "CG": (4, (0.615, 1.393, 0.0)),
        "CD": (5, (0.587, 1.399, 0.0)),
        "OE1": (6, (0.634, 1.060, 0.0)),
        "NE2": (6, (0.593, -1.189, -0.001)),
    },
    "GLU": {
        "N": (0, (-0.528, 1.361, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.526, -0.781, -1.207)),
        "CG": (4, (0.615, 1.392, 0.0)),
        "CD": (5, (0.600, 1.397, 0.0)),
        "OE1": (6, (0.607, 1.095, 0.0)),
        "OE2": (6, (0.589, -1.104, -0.001)),
    },
    "GLY": {
        "N": (0, (-0.572, 1.337, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.517, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
    },
    "HIS": {
        "N": (0, (-0.527, 1.360, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.625, 1.063, 0.0)),
        "CB": (0, (-0.525, -0.778, -1.208)),
        "CG": (4, (0.600, 1.370, 0.0)),
        "ND1": (5, (0.744, 1.160, 0.0)),
        "CD2": (5, (0.889, -1.021, 0.003)),
        "CE1": (5, (2.030, 0.851, 0.002)),
        "NE2": (5, (2.145, -0.466, 0.004)),
    },
    "ILE": {
        "N": (0, (-0.493, 1.373, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.527, 0.0, 0.0)),
        "O": (3, (0.627, 1.062, 0.0)),
        "CB": (0, (-0.536, -0.793, -1.213)),
        "CG1": (4, (0.534, 1.437, 0.0)),
        "CG2": (4, (0.540, -0.785, -1.199)),
        "CD1": (5, (0.619, 1.391, 0.0)),
    },
    "LEU": {
        "N": (0, (-0.520, 1.363, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.625, 1.063, 0.0)),
        "CB": (0, (-0.522, -0.773, -1.214)),
        "CG": (4, (0.678, 1.371, 0.0)),
        "CD1": (5, (0.530, 1.430, 0.0)),
        "CD2": (5, (0.535, -0.774, 1.200)),
    },
    "LYS": {
        "N": (0, (-0.526, 1.362, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.524, -0.778, -1.208)),
        "CG": (4, (0.619, 1.390, 0.0)),
        "CD": (5, (0.559, 1.417, 0.0)),
        "CE": (6, (0.560, 1.416, 0.0)),
        "NZ": (7, (0.554, 1.387, 0.0)),
    },
    "MET": {
        "N": (0, (-0.521, 1.364, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.625, 1.062, 0.0)),
        "CB": (0, (-0.523, -0.776, -1.210)),
        "CG": (4, (0.613, 1.391, 0.0)),
        "SD": (5, (0.703, 1.695, 0.0)),
        "CE": (6, (0.320, 1.786, 0.0)),
    },
    "PHE": {
        "N": (0, (-0.518, 1.363, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.524, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.525, -0.776, -1.212)),
        "CG": (4, (0.607, 1.377, 0.0)),
        "CD1": (5, (0.709, 1.195, 0.0)),
        "CD2": (5, (0.706, -1.196, 0.0)),
        "CE1": (5, (2.102, 1.198, 0.0)),
        "CE2": (5, (2.098, -1.201, 0.0)),
        "CZ": (5, (2.794, -0.003, -0.001)),
    },
    "PRO": {
        "N": (0, (-0.566, 1.351, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.527, 0.0, 0.0)),
        "O": (3, (0.621, 1.066, 0.0)),
        "CB": (0, (-0.546, -0.611, -1.293)),
        "CG": (4, (0.382, 1.445, 0.0)),
        "CD": (5, (0.477, 1.424, 0.0)),
    },
    "SER": {
        "N": (0, (-0.529, 1.360, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.518, -0.777, -1.211)),
        "OG": (4, (0.503, 1.325, 0.0)),
    },
    "THR": {
        "N": (0, (-0.517, 1.364, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.526, 0.0, 0.0)),
        "O": (3, (0.626, 1.062, 0.0)),
        "CB": (0, (-0.516, -0.793, -1.215)),
        "OG1": (4, (0.472, 1.353, 0.0)),
        "CG2": (4, (0.550, -0.718, -1.228)),
    },
    "TRP": {
        "N": (0, (-0.521, 1.363, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.525, 0.0, 0.0)),
        "O": (3, (0.627, 1.062, 0.0)),
        "CB": (0, (-0.523, -0.776, -1.212)),
        "CG": (4, (0.609, 1.370, 0.0)),
        "CD1": (5, (0.824, 1.091, 0.0)),
        "CD2": (5, (0.854, -1.148, -0.005)),
        "NE1": (5, (2.140, 0.690, -0.004)),
        "CE2": (5, (2.186, -0.678, -0.007)),
        "CE3": (5, (0.622, -2.530, -0.007)),
        "CZ2": (5, (3.283, -1.543, -0.011)),
        "CZ3": (5, (1.715, -3.389, -0.011)),
        "CH2": (5, (3.028, -2.890, -0.013)),
    },
    "TYR": {
        "N": (0, (-0.522, 1.362, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.524, 0.0, 0.0)),
        "O": (3, (0.627, 1.062, 0.0)),
        "CB": (0, (-0.522, -0.776, -1.213)),
        "CG": (4, (0.607, 1.382, 0.0)),
        "CD1": (5, (0.716, 1.195, 0.0)),
        "CD2": (5, (0.713, -1.194, -0.001)),
        "CE1": (5, (2.107, 1.200, -0.002)),
        "CE2": (5, (2.104, -1.201, -0.003)),
        "CZ": (5, (2.791, -0.001, -0.003)),
        "OH": (5, (4.168, -0.002, -0.005)),
    },
    "VAL": {
        "N": (0, (-0.494, 1.373, 0.0)),
        "CA": (0, (0.0, 0.0, 0.0)),
        "C": (0, (1.527, 0.0, 0.0)),
        "O": (3, (0.627, 1.062, 0.0)),
        "CB": (0, (-0.533, -0.795, -1.213)),
        "CG1": (4, (0.540, 1.429, 0.0)),
        "CG2": (4, (0.533, -0.776, 1.203)),
    },
}

# residue names by code; the last is the unknown residue
RESTYPE_NAMES = [*RIGID_GROUPS, "UNK"]

_ATOM37 = """
    N CA C CB O CG CG1 CG2 OG OG1 SG CD CD1 CD2 ND1 ND2 OD1 OD2 SD
    CE CE1 CE2 CE3 NE NE1 NE2 OE1 OE2 CH2 NH1 NH2 OH CZ CZ2 CZ3 NZ OXT
"""
ATOM_TYPES = _ATOM37.split()
ATOM_ORDER = {name: index for index, name in enumerate(ATOM_TYPES)}
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

ATOM14_NAMES = {name: [*atoms] for name, atoms in RIGID_GROUPS.items()} | {"UNK": []}

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
            table[code, slot] = VDW_RADIUS[atom[0]]
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
