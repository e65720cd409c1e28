"""Checks of the geometry of predicted molecules against the molecules that were asked for.

Definitions and limits are those of PoseBusters (Buttenschoen et al., Chem. Sci. 15, 3130, 2024): bounds of
distance geometry, widened, for bonds, angles and contacts within a molecule; distances of atoms from a common
plane; van der Waals radii and volumes between molecules. Hydrogens are not predicted and take no part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from model.all_atom.neighbours import close_pairs
from model.all_atom.volumes import volume_overlaps
from model.structure import Structure

# relative excess over the bounds of bond lengths, angles and contacts within a molecule
BOND_TOLERANCE, ANGLE_TOLERANCE, CLASH_TOLERANCE = 0.25, 0.25, 0.3
# Å, distance from the common plane: largest of flat groups, and smallest maximum of rings that are not flat
FLAT_DISTANCE, PUCKER_DISTANCE = 0.25, 0.05
# share of the sum of two radii below which atoms of different molecules clash
CONTACT_SHARE = 0.75
# largest share of a ligand's volume that others may overlap
OVERLAP_SHARE = 0.075
# Å³, below which a centre is flat and has no handedness
SMALLEST_VOLUME = 0.1
# cosine of a dihedral angle from which the ends of a double bond lie on one side
SIDE_COSINE = 0.5
# largest number of failures that are listed one by one, for each check
MAX_LISTED = 50

CHECKS: Mapping[str, str] = {
    "chirality": "handedness of the centres",
    "double_bond_stereo": "side of the double bonds",
    "bond_lengths": "bond lengths",
    "bond_angles": "bond angles",
    "internal_clashes": "clashes within the molecule",
    "aromatic_flatness": "flatness of aromatic rings",
    "ring_pucker": "rings that must not be flat",
    "double_bond_flatness": "flatness of double bonds",
    "clashes": "clashes with other molecules",
    "volume_overlap": "volume shared with others",
}


@dataclass(frozen=True, eq=False)
class Restraints:
    """The geometry that the molecules of a structure should have; rows are indices of its atoms.

    Args:
        bonds: int [B, 2].
        bond_bounds: float [B, 2], smallest and largest length, Å.
        angles: int [G, 2], the outer atoms of angles.
        angle_bounds: float [G, 2], their smallest and largest distance, Å.
        pairs: int [P, 2], other pairs of atoms of a molecule.
        pair_lower: float [P], their smallest distance, Å.
        centres: int [K, 5], centres with three of their neighbours, and the atom from which these are seen:
            the fourth neighbour, or the centre if it has none.
        centre_signs: float [K], sign of the volume that the neighbours span.
        double_bonds: int [D, 4], substituent, double bond, substituent.
        double_bond_is_cis: bool [D], whether the substituents lie on one side.
        aromatic_rings: rows of atoms.
        puckered_rings: rows of atoms of rings that are not flat.
        flat_double_bonds: rows of atoms around a double bond.
        van_der_waals: float [A], Å.
        covalent: float [A], Å.
        is_inorganic: bool [A], ions and metals, whose contacts are judged by covalent radii.
        unchecked: why the geometry of a molecule cannot be checked, by the name of its chain.
    """

    bonds: np.ndarray = field(repr=False)
    bond_bounds: np.ndarray = field(repr=False)
    angles: np.ndarray = field(repr=False)
    angle_bounds: np.ndarray = field(repr=False)
    pairs: np.ndarray = field(repr=False)
    pair_lower: np.ndarray = field(repr=False)
    centres: np.ndarray = field(repr=False)
    centre_signs: np.ndarray = field(repr=False)
    double_bonds: np.ndarray = field(repr=False)
    double_bond_is_cis: np.ndarray = field(repr=False)
    aromatic_rings: tuple[np.ndarray, ...] = field(repr=False)
    puckered_rings: tuple[np.ndarray, ...] = field(repr=False)
    flat_double_bonds: tuple[np.ndarray, ...] = field(repr=False)
    van_der_waals: np.ndarray = field(repr=False)
    covalent: np.ndarray = field(repr=False)
    is_inorganic: np.ndarray = field(repr=False)
    unchecked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A part of a structure that a check does not accept.

    Args:
        check: key of CHECKS.
        atoms: its atoms, such as "B:HEM C1A".
        value: what was measured: Å, Å³ for chirality, the cosine of a dihedral angle for double_bond_stereo,
            the share for volume_overlap, whose atoms are the nearest two.
        limit: the nearest value that would be accepted.
    """

    check: str
    atoms: tuple[str, ...]
    value: float
    limit: float


@dataclass(frozen=True)
class ChainChecks:
    """The counts of a chain.

    Args:
        chain: name of the chain.
        label: its entity in words.
        counts: by key of CHECKS: number of parts that were checked, and of those that failed. A clash between
            chains counts in both.
        unchecked: why its geometry could not be checked; "" if it was.
    """

    chain: str
    label: str
    counts: Mapping[str, tuple[int, int]]
    unchecked: str = ""


@dataclass(frozen=True)
class Checks:
    """The results of all checks of a structure.

    Args:
        chains: counts of each chain.
        failures: at most MAX_LISTED of each check, worst first.
        failed: number of failures of each check that has any.
    """

    chains: tuple[ChainChecks, ...]
    failures: tuple[Failure, ...]
    failed: Mapping[str, int]

    @property
    def summary(self) -> str:
        """One line: "passed", or the checks that failed with their numbers, then what was not checked."""
        parts = [f"{key} {count}" for key, count in self.failed.items()]
        parts += [f"{chain.chain} not checked" for chain in self.chains if chain.unchecked]
        return ", ".join(parts) if self.failed else ", ".join(["passed", *parts])

    def as_dict(self) -> dict[str, Any]:
        """Return the results as JSON holds them."""
        return {
            "summary": self.summary,
            "failed": dict(self.failed),
            "chains": [
                {
                    "chain": chain.chain,
                    "label": chain.label,
                    "unchecked": chain.unchecked,
                    "counts": {key: list(count) for key, count in chain.counts.items()},
                }
                for chain in self.chains
            ],
            "failures": [
                {
                    "check": failure.check,
                    "atoms": list(failure.atoms),
                    "value": round(failure.value, 3),
                    "limit": round(failure.limit, 3),
                }
                for failure in self.failures
            ],
        }


@dataclass(frozen=True, eq=False)
class _Result:
    """The findings of a check: atoms of each part, int [n, …], values, limits and excess over them, [n]."""

    check: str
    atoms: tuple[np.ndarray, ...] | np.ndarray
    values: np.ndarray
    limits: np.ndarray
    excess: np.ndarray

    @property
    def failed(self) -> np.ndarray:
        return ~(self.excess <= 0)


def check_structure(structure: Structure, positions: np.ndarray, restraints: Restraints) -> Checks:
    """Check predicted positions [A, 3], Å, of molecules, given the geometry that they should have."""
    positions = positions.astype(np.float64)
    results = list(_run_checks(structure, positions, restraints))
    counts: list[dict[str, tuple[int, int]]] = [{} for _ in structure.chains]
    for result in results:
        for index, chain in enumerate(_chains_of_parts(structure, result, len(counts))):
            if len(chain):
                counts[index][result.check] = (len(chain), int(result.failed[chain].sum()))
    names, unchecked = structure.chain_names, restraints.unchecked
    return Checks(
        tuple(
            ChainChecks(name, _chain_label(structure, index), counts[index], unchecked.get(name, ""))
            for index, name in enumerate(names)
        ),
        tuple(failure for result in results for failure in _failures(structure, result)),
        {result.check: int(result.failed.sum()) for result in results if result.failed.any()},
    )


def _run_checks(structure: Structure, positions: np.ndarray, restraints: Restraints) -> Iterator[_Result]:
    yield _chirality(positions, restraints)
    yield _double_bond_stereo(positions, restraints)
    for check, atoms, bounds, tolerance in (
        ("bond_lengths", restraints.bonds, restraints.bond_bounds, BOND_TOLERANCE),
        ("bond_angles", restraints.angles, restraints.angle_bounds, ANGLE_TOLERANCE),
    ):
        yield _within_bounds(check, positions, atoms, bounds, tolerance)
    unbounded = np.column_stack([restraints.pair_lower, np.full(len(restraints.pairs), np.inf)])
    yield _within_bounds("internal_clashes", positions, restraints.pairs, unbounded, CLASH_TOLERANCE)
    yield _flatness("aromatic_flatness", positions, restraints.aromatic_rings, FLAT_DISTANCE)
    yield _flatness("ring_pucker", positions, restraints.puckered_rings, PUCKER_DISTANCE, largest=False)
    yield _flatness("double_bond_flatness", positions, restraints.flat_double_bonds, FLAT_DISTANCE)
    yield _clashes(structure, positions, restraints)
    yield _volume_overlap(structure, positions, restraints)


def _chirality(positions: np.ndarray, restraints: Restraints) -> _Result:
    """Compare the sign of the volume that three neighbours of each centre span with the reference's."""
    *neighbours, apex = (positions[column] for column in restraints.centres.T[1:])
    first, second, third = (neighbour - apex for neighbour in neighbours)
    volumes = np.einsum("ki,ki->k", first, np.cross(second, third))
    limits = SMALLEST_VOLUME * restraints.centre_signs
    excess = SMALLEST_VOLUME - volumes * restraints.centre_signs
    return _Result("chirality", restraints.centres, volumes, limits, excess)


def _double_bond_stereo(positions: np.ndarray, restraints: Restraints) -> _Result:
    """Compare the side on which the substituents of double bonds lie with the reference's.

    The value is the cosine of the dihedral angle. Between 60° and 120°, a bond has neither side, as in InChI.
    """
    first, second, third, fourth = (positions[column] for column in restraints.double_bonds.T)
    axis = third - second
    left = np.cross(first - second, axis)
    right = np.cross(fourth - third, axis)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = np.einsum("ki,ki->k", left, right) / np.maximum(norms, 1e-9)
    signs = np.where(restraints.double_bond_is_cis, 1.0, -1.0)
    limits = SIDE_COSINE * signs
    return _Result(
        "double_bond_stereo", restraints.double_bonds, cosines, limits, SIDE_COSINE - cosines * signs
    )


def _within_bounds(
    check: str, positions: np.ndarray, atoms: np.ndarray, bounds: np.ndarray, tolerance: float
) -> _Result:
    """Compare distances with bounds [n, 2] that are widened by a relative tolerance."""
    distances = np.linalg.norm(positions[atoms[:, 0]] - positions[atoms[:, 1]], axis=1)
    lower, upper = bounds[:, 0] * (1 - tolerance), bounds[:, 1] * (1 + tolerance)
    limits = np.where(distances < lower, lower, np.where(distances > upper, upper, distances))
    return _Result(check, atoms, distances, limits, np.maximum(lower - distances, distances - upper))


def _flatness(
    check: str, positions: np.ndarray, groups: tuple[np.ndarray, ...], limit: float, largest: bool = True
) -> _Result:
    """Compare the largest distance of a group's atoms from their common plane with a limit."""
    values = np.array([_plane_distance(positions[group]) for group in groups], np.float64)
    excess = values - limit if largest else limit - values
    return _Result(check, groups, values, np.full(len(groups), limit), excess)


def _plane_distance(positions: np.ndarray) -> float:
    """Return the largest distance of positions [n, 3] from the plane that fits them best."""
    centred = positions - positions.mean(axis=0)
    normal = np.linalg.svd(centred)[2][-1]
    return float(np.abs(centred @ normal).max())


def _clashes(structure: Structure, positions: np.ndarray, restraints: Restraints) -> _Result:
    """Compare distances between molecules with the sum of the radii.

    Molecules are chains. Within a polymer, residues count as different molecules. Atoms within three bonds of
    each other are left out.
    """
    radii = restraints.van_der_waals
    reach = 2 * CONTACT_SHARE * float(radii.max(initial=0.0))
    polymer = structure.chain_is_polymer[structure.atom_chain]
    part = np.where(polymer, structure.atom_residue, len(structure.residue_code) + structure.atom_chain)
    pairs = close_pairs(positions, reach, part)
    pairs = pairs[~_is_near_in_bonds(structure, pairs)]
    inorganic = restraints.is_inorganic[pairs].any(axis=1)
    sums = np.where(inorganic, restraints.covalent[pairs].sum(axis=1), radii[pairs].sum(axis=1))
    distances = np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)
    limits = CONTACT_SHARE * sums
    return _Result("clashes", pairs, distances, limits, limits - distances)


def _volume_overlap(structure: Structure, positions: np.ndarray, restraints: Restraints) -> _Result:
    """Compare the shares of ligands' volumes that polymers, other ligands and ions overlap with a limit."""
    found = list(volume_overlaps(structure, positions, restraints.van_der_waals))
    atoms = np.array([pair for pair, _ in found], np.int64).reshape(-1, 2)
    shares = np.array([share for _, share in found])
    return _Result(
        "volume_overlap", atoms, shares, np.full(len(shares), OVERLAP_SHARE), shares - OVERLAP_SHARE
    )


def _is_near_in_bonds(structure: Structure, pairs: np.ndarray) -> np.ndarray:
    """Return whether the atoms of each pair are within three bonds, bool [n]."""
    first, second = structure.bonds[:, 0], structure.bonds[:, 1]
    begins, ends = np.concatenate([first, second]), np.concatenate([second, first])
    order, atoms = np.argsort(begins, kind="stable"), len(structure.atom_residue)
    begins, ends = begins[order], ends[order]
    first_bond = np.searchsorted(begins, np.arange(atoms + 1))
    reached: list[np.ndarray] = []
    start, last = begins, ends
    for _ in range(2):  # walks of two and of three bonds, which include those there and back
        count = np.diff(first_bond)[last]
        bond = np.arange(count.sum()) + np.repeat(first_bond[last] - np.cumsum(count) + count, count)
        start, last = np.repeat(start, count), ends[bond]
        reached.append(start * atoms + last)
    return np.isin(pairs[:, 0] * atoms + pairs[:, 1], np.concatenate(reached))


def _chains_of_parts(structure: Structure, result: _Result, count: int) -> list[np.ndarray]:
    """Return the indices of the parts that have an atom in each chain."""
    parts = len(result.atoms)
    if not parts:
        return [np.zeros(0, np.int64)] * count
    if isinstance(result.atoms, np.ndarray):
        atoms, counts = result.atoms.ravel(), np.full(parts, result.atoms.shape[1])
    else:
        atoms, counts = np.concatenate(result.atoms), np.array([len(group) for group in result.atoms])
    keys = np.unique(structure.atom_chain[atoms] * parts + np.repeat(np.arange(parts), counts))
    return [keys[keys // parts == chain] % parts for chain in range(count)]


def _chain_label(structure: Structure, chain: int) -> str:
    entity = structure.entities[structure.chains[chain].entity]
    return entity.description if entity.kind.is_polymer else "-".join(entity.codes)


def _failures(structure: Structure, result: _Result) -> list[Failure]:
    """Return the worst failures of a check."""
    failed = np.flatnonzero(result.failed)
    order = failed[np.argsort(-np.nan_to_num(result.excess[failed], nan=np.inf), kind="stable")][:MAX_LISTED]
    return [
        Failure(
            result.check,
            tuple(atom_label(structure, int(atom)) for atom in result.atoms[index]),
            float(result.values[index]),
            float(result.limits[index]),
        )
        for index in order.tolist()
    ]


def atom_label(structure: Structure, atom: int) -> str:
    """Return residue and name of an atom for people, such as "B:HEM FE"."""
    return f"{structure.residue_label(int(structure.atom_residue[atom]))} {structure.atom_name[atom]}"
