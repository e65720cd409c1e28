"""Solvent-accessible surface of protein residues, and the share of them that is exposed.

The surface is that of Shrake and Rupley, J. Mol. Biol. 79, 351 (1973), with the radii of Tsai et al., J. Mol.
Biol. 290, 253 (1999), the maximum areas of Rost and Sander, Proteins 20, 216 (1994), and OpenFold3's window
and threshold.
"""

from functools import partial

import numpy as np
import torch

from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import run_in_threads

PROBE = 1.4
POINTS = 1000
WINDOW = 25
EXPOSED = 0.581
# of a chunk of a thread
_ATOMS = 128
# Å, distance of atoms that probably share a bond or a neighbour
_BONDED = 2.6

# Å², by residue in the order of RESTYPES; other residues have OTHER_AREA
_AREAS = (106, 248, 157, 163, 135, 198, 194, 84, 184, 169, 164, 205, 188, 197, 136, 130, 142, 227, 222, 142)
OTHER_AREA = 113.0
# Å, by element; carbons are those with hydrogens and four bonds, oxygens those with two bonds
_ELEMENT_RADII = {6: 1.88, 7: 1.64, 8: 1.46, 16: 1.77, 34: 1.77}
_OTHER_RADIUS = 1.8
_CARBONYL, _AROMATIC, _BARE = 1.42, 1.76, 1.61
_SPECIAL_RADII = {
    "": {"C": _BARE, "O": _CARBONYL},
    "R": {"CZ": _BARE},
    "N": {"CG": _BARE, "OD1": _CARBONYL},
    "D": {"CG": _BARE, "OD1": _CARBONYL},
    "Q": {"CD": _BARE, "OE1": _CARBONYL},
    "E": {"CD": _BARE, "OE1": _CARBONYL},
    "H": {"CG": _BARE, "CD2": _AROMATIC, "CE1": _AROMATIC},
    "F": {"CG": _BARE} | dict.fromkeys(("CD1", "CD2", "CE1", "CE2", "CZ"), _AROMATIC),
    "Y": {"CG": _BARE, "CZ": _BARE} | dict.fromkeys(("CD1", "CD2", "CE1", "CE2"), _AROMATIC),
    "W": dict.fromkeys(("CG", "CD2", "CE2"), _BARE)
    | dict.fromkeys(("CD1", "CE3", "CZ2", "CZ3", "CH2"), _AROMATIC),
}


def exposed_share(
    positions: np.ndarray, radii: np.ndarray, chain: np.ndarray, residue: np.ndarray, areas: np.ndarray
) -> float:
    """Return the share of residues whose smoothed relative surface exceeds 0.581; 0 without residues.

    Args:
        positions: float32 [n, 3], Å, of atoms of protein residues.
        radii: float32 [n], Å, van der Waals radii.
        chain: [n], number of the chain; each chain is taken alone.
        residue: [n], number of the residue in its chain, ascending.
        areas: [n], Å², largest accessible area of the atom's residue.
    """
    exposed: list[np.ndarray] = []
    for number in np.unique(chain):
        atoms = np.flatnonzero(chain == number)
        atom_areas = accessible_areas(positions[atoms], radii[atoms])
        first = np.flatnonzero(np.diff(residue[atoms], prepend=residue[atoms[0]] - 1))
        relative = np.add.reduceat(atom_areas, first) / areas[atoms[first]]
        exposed.append(_smooth(np.clip(relative, 0, 1)) > EXPOSED)
    return float(np.concatenate(exposed).mean()) if exposed else 0.0


def van_der_waals_radius(element: int, name: str, residue: str) -> float:
    """Return the radius of an atom, Å; `residue` is a letter of RESTYPES, or "" for other residues."""
    own, any_residue = _SPECIAL_RADII.get(residue, {}), _SPECIAL_RADII[""]
    return own.get(name, any_residue.get(name, _ELEMENT_RADII.get(element, _OTHER_RADIUS)))


def largest_area(residue_type: np.ndarray) -> np.ndarray:
    """Return the largest accessible area of residues, Å², by their index in RESTYPES; −1 for others."""
    return np.array([*_AREAS, OTHER_AREA], np.float64)[residue_type]


def accessible_areas(positions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Return the solvent-accessible area of each atom, Å², float32 [n].

    Positions are float32 [n, 3], Å, and van der Waals radii float32 [n], Å.
    """
    reach = radii + np.float32(PROBE)
    free, order = np.empty(len(positions), np.int64), np.argsort(positions[:, 0])
    count = partial(_count_free_points, positions[order], reach[order], _sphere(), order, free)
    chunks = [(begin, min(begin + _ATOMS, len(positions))) for begin in range(0, len(positions), _ATOMS)]
    run_in_threads(count, chunks, torch.get_num_threads())
    return np.float32(4 * np.pi / POINTS) * free.astype(np.float32) * (reach * reach)


@kernel
def _count_free_points(
    positions: np.ndarray,
    reach: np.ndarray,
    points: np.ndarray,
    order: np.ndarray,
    free: np.ndarray,
    begin: int,
    end: int,
) -> None:
    """Count the points of the spheres of some atoms that are in no other sphere.

    Atoms are ordered by their first coordinate; `free` has the order in which they were before.
    """
    near, widest = np.empty(len(positions), np.int64), 2 * reach.max()
    left = np.empty((3, len(points)), np.float32)
    for i in range(begin, end):
        count = bonded = 0
        for step in (-1, 1):
            j = i + step
            while 0 <= j < len(positions) and abs(positions[j, 0] - positions[i, 0]) < widest:
                squared = np.float32(0)
                for axis in range(3):
                    squared += (positions[j, axis] - positions[i, axis]) ** 2
                if squared != 0 and squared < (reach[i] + reach[j]) ** 2:
                    near[count] = j
                    if squared < _BONDED**2:
                        # first, because these spheres cover most
                        near[count], near[bonded] = near[bonded], j
                        bonded += 1
                    count += 1
                j += step
        for axis in range(3):
            for point in range(len(points)):
                left[axis, point] = points[point, axis] * reach[i] + positions[i, axis]
        total = len(points)
        for k in range(count):
            total = _keep_outside(left, total, positions[near[k]], reach[near[k]] * reach[near[k]])
        free[order[i]] = total


@kernel
def _keep_outside(points: np.ndarray, total: int, centre: np.ndarray, squared_radius: float) -> int:
    """Move the points that are not in a sphere to the front, and return their number; points are [3, P]."""
    kept, x, y, z = 0, points[0], points[1], points[2]
    for point in range(total):
        squared = (x[point] - centre[0]) ** 2 + (y[point] - centre[1]) ** 2 + (z[point] - centre[2]) ** 2
        x[kept], y[kept], z[kept] = x[point], y[point], z[point]
        # without a branch, which would be mispredicted often
        kept += not squared < squared_radius
    return kept


def _sphere() -> np.ndarray:
    """Return points that are evenly distributed on the unit sphere along a golden spiral, float32 [P, 3]."""
    angle = (3 - np.sqrt(5)) * np.pi * np.arange(POINTS)
    height = np.linspace(1 - 1 / POINTS, 1 / POINTS - 1, POINTS)
    width = np.sqrt(1 - height * height)
    return np.stack([width * np.cos(angle), width * np.sin(angle), height], axis=-1).astype(np.float32)


def _smooth(values: np.ndarray) -> np.ndarray:
    """Average values [n] in a window around each, reflected at the ends."""
    padded = np.pad(values, WINDOW // 2, mode="reflect")
    return np.convolve(padded, np.ones(WINDOW), mode="valid") / WINDOW
