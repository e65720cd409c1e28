"""The share of a molecule's volume that others overlap, as PoseBusters and RDKit define it.

The volume of atoms is a field on a grid of 0.5 Å: 1 within the scaled van der Waals radius of an atom, then
2/3 and 1/3 in shells of 0.25 Å. The share is the sum of the smaller of two fields, divided by the sum of the
molecule's own (RDKit's Tversky index of shapes, weighted 1 to 0).
"""

from collections.abc import Iterator

import numpy as np

from model.structure import EntityKind, Structure

# Å
_SPACING, _SHELL = 0.5, 0.25
_SHELLS = 3
# share of the van der Waals radii, of ions next to a ligand, and of everything else
_SCALE, _ION_SCALE = 0.8, 0.5
# Å, beyond which atoms share no volume
_REACH = 5.0
# weights of the coordinates of a grid point in its key
_KEY = np.array([1, 1 << 20, 1 << 40])


def volume_overlaps(
    structure: Structure, positions: np.ndarray, radii: np.ndarray
) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield the overlaps of each ligand with polymers, with other ligands and with ions, if these are near.

    Atoms that are bonded to the ligand, and their neighbours, do not count. Positions are float64 [A, 3], van
    der Waals radii float64 [A], Å.

    Yields:
        The two nearest atoms, the ligand's first, and the share of the ligand's volume.
    """
    kinds = np.array([_group(structure.kind(chain)) for chain in range(len(structure.chains))])
    for chain in np.flatnonzero(kinds == 1).tolist():
        own = structure.atom_chain == chain
        if own.sum() < 2:
            continue
        others = ~own & ~_bonded(structure, own)
        low, high = positions[own].min(axis=0) - _REACH, positions[own].max(axis=0) + _REACH
        near = np.flatnonzero(others & ((positions >= low) & (positions <= high)).all(axis=1))
        rows = np.flatnonzero(own)
        distances = np.linalg.norm(positions[rows][:, None] - positions[near], axis=-1)
        for group, scale in ((0, _SCALE), (1, _SCALE), (2, _ION_SCALE)):
            columns = np.flatnonzero(
                (kinds[structure.atom_chain[near]] == group) & (distances < _REACH).any(axis=0)
            )
            if not len(columns):
                continue
            first, second = np.unravel_index(np.argmin(distances[:, columns]), (len(rows), len(columns)))
            partners = near[columns]
            share = overlap_share(
                positions[rows], scale * radii[rows], positions[partners], scale * radii[partners]
            )
            yield (int(rows[first]), int(partners[second])), share


def overlap_share(
    positions: np.ndarray, radii: np.ndarray, other_positions: np.ndarray, other_radii: np.ndarray
) -> float:
    """Return the share of the volume of atoms that other atoms overlap, 0 to 1.

    Positions are [a, 3] and [b, 3], radii [a] and [b], Å.
    """
    own_keys, own = _field(positions, radii)
    other_keys, other = _field(other_positions, other_radii)
    _, first, second = np.intersect1d(own_keys, other_keys, assume_unique=True, return_indices=True)
    return float(np.minimum(own[first], other[second]).sum() / own.sum())


def _field(positions: np.ndarray, radii: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and values (1 to 3) of the grid points in and around atoms."""
    reach = int(np.ceil((float(radii.max()) + _SHELLS * _SHELL) / _SPACING))
    offsets = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij"), -1).reshape(-1, 3)
    points = np.rint(positions / _SPACING).astype(np.int64)[:, None] + offsets
    distances = np.linalg.norm(points * _SPACING - positions[:, None], axis=-1)
    values = np.clip(_SHELLS - np.ceil((distances - radii[:, None]) / _SHELL), 0, _SHELLS)
    inside = values > 0
    keys, index = np.unique(points[inside] @ _KEY, return_inverse=True)
    result = np.zeros(len(keys))
    np.maximum.at(result, index, values[inside])
    return keys, result


def _group(kind: EntityKind) -> int:
    """Return 0 for polymers, 1 for ligands and 2 for ions."""
    return 0 if kind.is_polymer else 2 if kind == EntityKind.ION else 1


def _bonded(structure: Structure, own: np.ndarray) -> np.ndarray:
    """Return which atoms are bonded to atoms of a molecule, or to those, bool [A]."""
    bonded = own.copy()
    first, second = structure.bonds[:, 0], structure.bonds[:, 1]
    for _ in range(2):
        crossing = bonded[first] | bonded[second]
        bonded[first[crossing]] = bonded[second[crossing]] = True
    return bonded & ~own
