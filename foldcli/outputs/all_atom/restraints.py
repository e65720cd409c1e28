"""The geometry that a job's molecules should have, from RDKit and the molecules as they were given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

import gemmi
import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom

from features.assembly.atoms import Atoms
from features.chemistry.components import Component
from features.chemistry.molecules import InvalidMolecule, build_molecule, without_hydrogens
from model.all_atom.checks import Restraints
from model.structure import EntityKind, Structure

_CHIRAL_TAGS = {
    Chem.ChiralType.CHI_TETRAHEDRAL_CCW: 1.0,
    Chem.ChiralType.CHI_TETRAHEDRAL_CW: -1.0,
}
_CIS = (Chem.BondStereo.STEREOZ, Chem.BondStereo.STEREOCIS)
_TRANS = (Chem.BondStereo.STEREOE, Chem.BondStereo.STEREOTRANS)
# Å, bonds that join residues; others have the sum of the covalent radii
_LINK_LENGTHS: dict[tuple[str, ...], float] = {
    ("C", "N"): 1.33,
    ("O", "P"): 1.61,
    ("S", "S"): 2.05,
    ("C", "O"): 1.43,
}


@dataclass(frozen=True, eq=False)
class _Geometry:
    """The geometry of a molecule: tables of `Restraints` by name, with indices of its component's atoms."""

    tables: Mapping[str, Any] = field(default_factory=dict)
    unchecked: str = ""


def build_restraints(atoms: Atoms, structure: Structure) -> Restraints:
    """Return the geometry that the molecules of a job should have."""
    rows: dict[str, list[Any]] = {}
    unchecked: dict[str, str] = {}
    start = 0
    for molecule in atoms.molecules:
        component = molecule.component
        geometry = _geometry(component)
        index = np.where(molecule.kept, start + np.cumsum(molecule.kept) - 1, -1)
        if geometry.unchecked:
            chain = structure.chain_names[structure.atom_chain[start]]
            unchecked[chain] = f"{component.code}: {geometry.unchecked}"
        start += int(molecule.kept.sum())
        for name, values in _rows(geometry, index):
            rows.setdefault(name, []).append(values)
    _add_links(rows, structure)
    table = Chem.GetPeriodicTable()
    # an atom of no known element is judged as carbon
    elements = ["C" if element == "X" else str(element) for element in structure.atom_element]
    ions = np.array([structure.kind(index) == EntityKind.ION for index in range(len(structure.chains))])
    tables: dict[str, Any] = {
        name: _stack(rows.get(name, []), width, dtype) for name, (width, dtype) in _COLUMNS.items()
    }
    tables |= {name: tuple(group for groups in rows.get(name, ()) for group in groups) for name in _GROUPS}
    return Restraints(
        **tables,
        van_der_waals=np.array([table.GetRvdw(element) for element in elements]),
        covalent=np.array([table.GetRcovalent(element) for element in elements]),
        is_inorganic=ions[structure.atom_chain] | structure.atom_is_metal,
        unchecked=unchecked,
    )


# width and type of the rows of each table
_COLUMNS = {
    "bonds": (2, np.int64),
    "bond_bounds": (2, np.float64),
    "angles": (2, np.int64),
    "angle_bounds": (2, np.float64),
    "pairs": (2, np.int64),
    "pair_lower": (0, np.float64),
    "centres": (5, np.int64),
    "centre_signs": (0, np.float64),
    "double_bonds": (4, np.int64),
    "double_bond_is_cis": (0, np.bool_),
}
# tables of atoms, and those of their values
_EXTRAS = (
    ("bonds", "bond_bounds"),
    ("angles", "angle_bounds"),
    ("pairs", "pair_lower"),
    ("centres", "centre_signs"),
    ("double_bonds", "double_bond_is_cis"),
)
_GROUPS = ("aromatic_rings", "puckered_rings", "flat_double_bonds")


def _stack(rows: Sequence[Any], width: int, dtype: type) -> np.ndarray:
    """Join arrays of rows of a width; width 0 stands for single values."""
    shape = (-1, width) if width else (-1,)
    return np.concatenate([np.zeros((0, width) if width else 0, dtype), *(x.reshape(shape) for x in rows)])


def _rows(geometry: _Geometry, index: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Return the rows of each table for one copy of a molecule, without those of atoms that are left out.

    Args:
        geometry: the geometry of the molecule.
        index: int [a], row of each of its atoms in the structure; -1 for those left out.
    """
    for name, extra in _EXTRAS:
        if not len(atoms := geometry.tables.get(name, ())):
            continue
        placed = index[atoms]
        kept = (placed >= 0).all(axis=1)
        yield name, placed[kept]
        yield extra, geometry.tables[extra][kept]
    for name in _GROUPS:
        groups = [index[group] for group in geometry.tables.get(name, ())]
        yield name, [group for group in groups if (group >= 0).all()]


def _add_links(rows: dict[str, list[Any]], structure: Structure) -> None:
    """Add the bonds between reference molecules, with the length that their elements have."""
    table = Chem.GetPeriodicTable()
    atoms = len(structure.atom_residue)
    known, bonds = (
        np.sort(pairs, axis=1) @ (atoms, 1)
        for pairs in (_stack(rows.get("bonds", []), 2, np.int64), structure.bonds[:, :2])
    )
    residue = structure.atom_residue[structure.bonds[:, :2]]
    links = structure.bonds[(residue[:, 0] != residue[:, 1]) & ~np.isin(bonds, known)]
    for first, second, _ in links.tolist():
        elements = tuple(sorted(str(structure.atom_element[atom]) for atom in (first, second)))
        if structure.atom_is_metal[[first, second]].any():
            continue  # coordination has no fixed length
        length = _LINK_LENGTHS.get(elements) or sum(table.GetRcovalent(element) for element in elements)
        rows.setdefault("bonds", []).append(np.array((first, second)))
        rows.setdefault("bond_bounds", []).append(np.array((length, length)))


@lru_cache(maxsize=512)
def _geometry(component: Component) -> _Geometry:
    """Return the geometry of a molecule by the indices of its component's atoms."""
    if len(component) == 1:
        return _Geometry()
    try:
        flat = without_hydrogens(build_molecule(component, chiral=False))
        chiral = without_hydrogens(build_molecule(component, chiral=True))
    except InvalidMolecule:
        return _Geometry(unchecked="RDKit does not accept its valences")
    if component.smiles is not None:
        # contacts do not depend on handedness, and PoseBusters takes none for its bounds
        flat = Chem.Mol(flat)
        Chem.RemoveStereochemistry(flat)
    with rdBase.BlockLogs():
        try:
            bounds = rdDistGeom.GetMoleculeBoundsMatrix(flat, set15bounds=True, scaleVDW=True)
        except (ValueError, RuntimeError):
            return _Geometry(unchecked="RDKit has no bounds for its distances")
    # lower bounds in the lower triangle, upper bounds in the upper one
    lower, upper = np.tril(bounds), np.triu(bounds)
    lower, upper = lower + lower.T, upper + upper.T
    _share_bounds_of_resonance(flat, lower, upper)
    ends = [_sorted_ends(bond) for bond in flat.GetBonds()]
    bonds, angles, pairs = (np.array(x, np.int64).reshape(-1, 2) for x in (ends, *_pairs(flat, ends)))
    bond_bounds, angle_bounds, pair_bounds = (
        np.column_stack([lower[tuple(x.T)], upper[tuple(x.T)]]) for x in (bonds, angles, pairs)
    )
    centres = [atom for atom in chiral.GetAtoms() if _is_centre(atom)]
    rings = flat.GetRingInfo().AtomRings()
    sided = [bond for bond in chiral.GetBonds() if bond.GetStereo() in (*_CIS, *_TRANS)]
    return _Geometry(
        {
            "bonds": bonds,
            "bond_bounds": bond_bounds,
            "angles": angles,
            "angle_bounds": angle_bounds,
            "pairs": pairs,
            "pair_lower": pair_bounds[:, 0],
            "centres": np.array([_centre_row(atom) for atom in centres]),
            "centre_signs": np.array([_CHIRAL_TAGS[atom.GetChiralTag()] for atom in centres]),
            "double_bonds": np.array([_sided_atoms(bond) for bond in sided]),
            "double_bond_is_cis": np.array([bond.GetStereo() in _CIS for bond in sided]),
            "aromatic_rings": [np.array(ring) for ring in rings if _is_flat_ring(flat, ring)],
            "puckered_rings": [np.array(ring) for ring in rings if _is_puckered_ring(flat, ring)],
            "flat_double_bonds": [
                np.array(
                    [
                        bond.GetBeginAtomIdx(),
                        *_others(bond.GetBeginAtom(), bond),
                        bond.GetEndAtomIdx(),
                        *_others(bond.GetEndAtom(), bond),
                    ]
                )
                for bond in flat.GetBonds()
                if _is_flat_double_bond(bond)
            ],
        }
    )


def _pairs(
    molecule: Chem.Mol, bonds: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the outer atoms of angles, and all other pairs that are not bonded.

    Coordination has no fixed angles: pairs with a metal, and those whose only common neighbours are metals,
    are left out.
    """
    metals = {atom.GetIdx() for atom in molecule.GetAtoms() if gemmi.Element(atom.GetSymbol()).is_metal}
    through: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for atom in molecule.GetAtoms():
        around = sorted(set(_bonded(atom)) - metals)
        through[atom.GetIdx() in metals].update(combinations(around, 2))
    angles = through[False] - set(bonds)
    rest = sorted(set(range(molecule.GetNumAtoms())) - metals)
    others = set(combinations(rest, 2)) - set(bonds) - angles - through[True]
    return sorted(angles), sorted(others)


def _sorted_ends(bond: Chem.Bond) -> tuple[int, int]:
    first, second = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
    return first, second


def _bonded(atom: Chem.Atom) -> list[int]:
    """Return the neighbours of an atom in the order of its bonds, which chiral tags refer to."""
    return [bond.GetOtherAtomIdx(atom.GetIdx()) for bond in atom.GetBonds()]


def _is_centre(atom: Chem.Atom) -> bool:
    """Return whether an atom has a handedness that was asked for.

    Two terminal atoms of one element, as in phosphates, differ only in how their bonds are drawn.
    """
    terminal = [other.GetSymbol() for other in atom.GetNeighbors() if other.GetDegree() == 1]
    drawn = [symbol for symbol in terminal if symbol in ("O", "S", "N")]
    is_tagged = atom.GetChiralTag() in _CHIRAL_TAGS and atom.GetDegree() >= 3
    return is_tagged and len(set(drawn)) == len(drawn)


def _centre_row(atom: Chem.Atom) -> tuple[int, ...]:
    bonded = _bonded(atom)
    return atom.GetIdx(), *bonded[:3], bonded[3] if len(bonded) > 3 else atom.GetIdx()


def _others(atom: Chem.Atom, bond: Chem.Bond) -> list[int]:
    """Return the neighbours of an atom except the one at the other end of a bond."""
    return [other for other in _bonded(atom) if other != bond.GetOtherAtomIdx(atom.GetIdx())]


def _sided_atoms(bond: Chem.Bond) -> tuple[int, ...]:
    first, second = bond.GetStereoAtoms()
    return first, bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), second


def _share_bounds_of_resonance(molecule: Chem.Mol, lower: np.ndarray, upper: np.ndarray) -> None:
    """Give the bonds to terminal O and N, as in carboxylates, the widest bounds of their elements.

    Args:
        molecule: the molecule.
        lower: [a, a], smallest distances; changed.
        upper: [a, a], largest distances; changed.
    """
    groups: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for bond in molecule.GetBonds():
        for atom in (bond.GetBeginAtom(), bond.GetEndAtom()):
            hub = bond.GetOtherAtom(atom)
            if _is_terminal(atom) and any(
                other.GetIdx() != bond.GetIdx()
                and _is_terminal(other.GetOtherAtom(hub))
                and {other.GetBondType(), bond.GetBondType()} == {Chem.BondType.SINGLE, Chem.BondType.DOUBLE}
                for other in hub.GetBonds()
            ):
                key = tuple(sorted((atom.GetSymbol(), hub.GetSymbol())))
                groups.setdefault(key, []).append(_sorted_ends(bond))
    for ends in groups.values():
        smallest, largest = min(lower[pair] for pair in ends), max(upper[pair] for pair in ends)
        for first, second in ends:
            lower[first, second] = lower[second, first] = smallest
            upper[first, second] = upper[second, first] = largest


def _is_terminal(atom: Chem.Atom) -> bool:
    return atom.GetSymbol() in ("O", "N") and atom.GetDegree() == 1 and not atom.GetIsAromatic()


def _is_sp2(atom: Chem.Atom) -> bool:
    return bool(atom.GetHybridization() == Chem.HybridizationType.SP2)


def _is_flat_ring(molecule: Chem.Mol, ring: Sequence[int]) -> bool:
    """Return whether a ring is an aromatic one of five or six atoms, none of which is in a smaller ring."""
    atoms = [molecule.GetAtomWithIdx(index) for index in ring]
    info = molecule.GetRingInfo()
    return len(ring) in (5, 6) and all(
        atom.GetIsAromatic() and _is_sp2(atom) and info.MinAtomRingSize(atom.GetIdx()) == len(ring)
        for atom in atoms
    )


def _is_puckered_ring(molecule: Chem.Mol, ring: Sequence[int]) -> bool:
    """Return whether a ring of six atoms, none in another ring, must not be flat.

    Such a ring consists of C, N, O and S, and has at most one double bond; or two double bonds that are not
    neighbours, and then other atoms than C in one of the double bonds only, or one such atom elsewhere.
    """
    atoms = [molecule.GetAtomWithIdx(index) for index in ring]
    info = molecule.GetRingInfo()
    if len(ring) != 6 or any(
        atom.GetIsAromatic() or atom.GetSymbol() not in "CNOS" or info.NumAtomRings(atom.GetIdx()) != 1
        for atom in atoms
    ):
        return False
    sides = list(zip(ring, (*ring[1:], ring[0]), strict=True))
    double = [
        set(side)
        for side in sides
        if molecule.GetBondBetweenAtoms(*side).GetBondType() != Chem.BondType.SINGLE
    ]
    if len(double) != 2:
        return len(double) < 2
    hetero = {atom.GetIdx() for atom in atoms if atom.GetSymbol() != "C"}
    elsewhere = set(ring) - double[0] - double[1]
    fits = hetero <= double[0] or hetero <= double[1] or (len(hetero) == 1 and hetero <= elsewhere)
    return fits and not double[0] & double[1]


def _is_flat_double_bond(bond: Chem.Bond) -> bool:
    """Return whether a double bond joins two carbons with two more neighbours each."""
    return bond.GetBondType() == Chem.BondType.DOUBLE and all(
        atom.GetSymbol() == "C" and not atom.GetIsAromatic() and _is_sp2(atom) and atom.GetDegree() == 3
        for atom in (bond.GetBeginAtom(), bond.GetEndAtom())
    )
