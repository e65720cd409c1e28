"""Components as RDKit molecules, and ligands drawn as SMILES strings."""

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from rdkit import Chem, rdBase

from features.chemistry.components import Component
from msa.base.errors import InputError

_BONDS = {
    1: Chem.BondType.SINGLE,
    2: Chem.BondType.DOUBLE,
    3: Chem.BondType.TRIPLE,
    4: Chem.BondType.QUADRUPLE,
}


class InvalidMolecule(InputError):
    """A molecule that RDKit cannot read, such as a SMILES string with a mistake."""


def parse_smiles(smiles: str, code: str = "LIG") -> Component:
    """Return the component that a SMILES string draws.

    Its atoms are named by element and number in the order of the string: C1, C2, O1, ...

    Raises:
        InvalidMolecule: RDKit cannot read the string, or it draws no atom but hydrogens, or a wildcard.
    """
    molecule = without_hydrogens(_read_smiles(smiles))
    if any(atom.GetAtomicNum() == 0 for atom in molecule.GetAtoms()):
        raise InvalidMolecule(f"SMILES {smiles!r:.200} has '*', which is no atom")
    if molecule.GetNumAtoms() == 0:
        raise InvalidMolecule(f"SMILES {smiles!r:.200} has no atoms besides hydrogens")
    elements = tuple(atom.GetSymbol().upper() for atom in molecule.GetAtoms())
    counts: Counter[str] = Counter()
    names = []
    for element in elements:
        counts[element] += 1
        names.append(f"{element}{counts[element]}")
    absent = np.full((len(names), 3), np.nan)
    bonds = [
        (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), max(1, int(bond.GetBondTypeAsDouble())))
        for bond in molecule.GetBonds()
    ]
    return Component(
        code,
        "NON-POLYMER",
        tuple(names),
        elements,
        np.array([atom.GetFormalCharge() for atom in molecule.GetAtoms()], np.int64),
        np.zeros(len(names), bool),
        np.array(bonds, np.int64).reshape(-1, 3),
        absent,
        absent,
        smiles=smiles,
    )


def build_molecule(component: Component, chiral: bool = True) -> Chem.Mol:
    """Return a component as a molecule without hydrogens and without coordinates.

    Args:
        component: the component.
        chiral: take the handedness of its centres and double bonds from its coordinates.

    Raises:
        InvalidMolecule: RDKit does not accept its valences or elements.
    """
    if component.smiles is not None:
        return _read_smiles(component.smiles)
    try:
        molecule = _assemble(component)
        Chem.SanitizeMol(molecule)
    except (ValueError, RuntimeError) as error:
        raise InvalidMolecule(f"component {component.code!r}: {error}") from None
    coordinates = _complete_coordinates(component)
    if chiral and coordinates is not None:
        conformer = Chem.Conformer(len(component))
        conformer.SetPositions(coordinates)
        molecule.AddConformer(conformer)
        Chem.AssignStereochemistryFrom3D(molecule)
        molecule.RemoveAllConformers()
    return molecule


def without_hydrogens(molecule: Chem.Mol) -> Chem.Mol:
    """Return a molecule without its hydrogens; the order of the other atoms stays."""
    try:
        return Chem.RemoveAllHs(molecule)
    except (ValueError, RuntimeError):
        return Chem.RemoveAllHs(molecule, sanitize=False)


def join_components(
    components: Sequence[Component], bonds: Sequence[tuple[int, int, int, int]], removed: Sequence[np.ndarray]
) -> Component:
    """Return several components, such as the sugars of a glycan, joined by bonds to one.

    Each component is moved so that the atom which it loses at a bond lies on the atom that replaces it: the
    coordinates around every centre keep their handedness.

    Args:
        components: the components.
        bonds: (component, atom, component, atom) of each bond between them.
        removed: bool [A] of each component, atoms that leave.
    """
    shifts = _joined_shifts(components, bonds, removed)
    starts = np.cumsum([0, *[len(component) for component in components]])
    kept = ~np.concatenate(list(removed))
    rows = [
        component.bonds + np.array([start, start, 0])
        for component, start in zip(components, starts, strict=False)
    ]
    rows.append(
        np.array([(starts[a] + i, starts[b] + j, 1) for a, i, b, j in bonds], np.int64).reshape(-1, 3)
    )
    table = np.concatenate(rows)
    table = table[kept[table[:, :2]].all(1)]
    position = np.cumsum(kept) - 1
    table[:, :2] = position[table[:, :2]]

    def select(values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(list(values))[kept]

    return Component(
        "-".join(component.code for component in components),
        "NON-POLYMER",
        tuple(select([np.array(component.names, object) for component in components])),
        tuple(select([np.array(component.elements, object) for component in components])),
        select([component.charges for component in components]),
        select([component.leaving for component in components]),
        table,
        select([component.ideal + shift for component, shift in zip(components, shifts, strict=True)]),
        select([np.full((len(component), 3), np.nan) for component in components]),
    )


def _joined_shifts(
    components: Sequence[Component], bonds: Sequence[tuple[int, int, int, int]], removed: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the translation of each component; see `join_components`."""
    shifts: dict[int, np.ndarray] = {}
    for root in range(len(components)):
        pending = [] if root in shifts else [root]
        shifts.setdefault(root, np.zeros(3))
        while pending:
            current = pending.pop()
            for first, i, second, j in [*bonds, *[(b, j, a, i) for a, i, b, j in bonds]]:
                if first != current or second in shifts:
                    continue
                lost = _lost_neighbour(components[second], j, removed[second])
                if lost is not None:  # the new component loses an atom, whose place the other's atom takes
                    there, here = components[first].ideal[i], components[second].ideal[lost]
                else:
                    lost = _lost_neighbour(components[first], i, removed[first])
                    there = components[first].ideal[i if lost is None else lost]
                    here = components[second].ideal[j]
                shifts[second] = shifts[first] + there - here
                pending.append(second)
    return [shifts[index] for index in range(len(components))]


def _lost_neighbour(component: Component, atom: int, removed: np.ndarray) -> int | None:
    """Return the neighbour of an atom that leaves, if there is one."""
    for first, second, _ in component.bonds:
        if atom in (first, second):
            other = int(first + second - atom)
            if removed[other]:
                return other
    return None


@functools.lru_cache(maxsize=256)
def _read_smiles(smiles: str) -> Chem.Mol:
    """Return the molecule of a SMILES string; raise InvalidMolecule if RDKit cannot read it.

    RDKit would read the string up to the first blank, which may be an extension of ChemAxon (`|...|`).
    """
    extension = smiles.split(maxsplit=1)[1:]
    if extension and not extension[0].startswith("|"):
        reason = "has a blank or a line end (in JSON, a backslash is written twice)"
        raise InvalidMolecule(f"SMILES {smiles!r:.200} {reason}")
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise InvalidMolecule(f"RDKit cannot read the SMILES string {smiles!r:.200}")
    return molecule


def _assemble(component: Component) -> Chem.Mol:
    """Return the atoms and bonds of a component as an unchecked molecule."""
    molecule = Chem.RWMol()
    for element, charge in zip(component.elements, component.charges, strict=True):
        atom = Chem.Atom("*" if element == "X" else element.capitalize())
        atom.SetFormalCharge(int(charge))
        molecule.AddAtom(atom)
    for first, second, order in component.bonds:
        molecule.AddBond(int(first), int(second), _BONDS[int(order)])
    return molecule.GetMol()


def _complete_coordinates(component: Component) -> np.ndarray | None:
    """Return the idealised coordinates if none is missing, else those from a structure, else None."""
    for coordinates in (component.ideal, component.model):
        if not np.isnan(coordinates).any():
            return np.ascontiguousarray(coordinates)
    return None
