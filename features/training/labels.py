"""Labels of training samples: the molecules and atoms of a complex that no experiment can tell apart."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from features.assembly.atoms import Atoms
from features.assembly.tokens import Tokens
from features.chemistry.components import Component
from features.chemistry.molecules import InvalidMolecule, build_molecule
from features.chemistry.residue_classes import MoleculeKind

# atom at the centre of a standard residue by its first atom's name: CA of amino acids, C1' of nucleotides
_CENTRES = ("CA", "C1'")


@dataclass(frozen=True, eq=False)
class MoleculeTable:
    """The molecules of a complex. A molecule is a chain, or several that are bonded to each other.

    Attributes:
        entity: int [T], number of the kind of molecule of each token.
        copy: int [T], number of the molecule among those of its kind.
        index: int [T], number of the token in its molecule.
        component: int [T], number of the token's reference molecule in its molecule.
        is_ligand: bool [T], whether the token's chain is a ligand.
        centre: int [T], atom at the centre of the token.
        atom_token: int [A], token of each atom.
        symmetries: equivalent orders of the atoms of reference molecules that have several: int [P, n] by
            entity, copy and component.
    """

    entity: np.ndarray = field(repr=False)
    copy: np.ndarray = field(repr=False)
    index: np.ndarray = field(repr=False)
    component: np.ndarray = field(repr=False)
    is_ligand: np.ndarray = field(repr=False)
    centre: np.ndarray = field(repr=False)
    atom_token: np.ndarray = field(repr=False)
    symmetries: dict[tuple[int, int, int], np.ndarray] = field(repr=False)

    def crop(self, tokens: np.ndarray) -> "MoleculeTable":
        """Return the table of some tokens, ascending; parts of reference molecules keep all their orders."""
        kept = np.isin(self.atom_token, tokens)
        names = ("entity", "copy", "index", "component", "is_ligand")
        columns = {name: getattr(self, name)[tokens] for name in names}
        keys = zip(*(columns[name].tolist() for name in ("entity", "copy", "component")), strict=True)
        symmetries = {}
        for key in sorted(set(keys)):
            members = self._atoms_of(key)
            orders = self.symmetries.get(key, np.arange(len(members))[None])[:, kept[members]]
            if len(orders) > 1 or orders.shape[1] < len(members):
                symmetries[key] = orders
        return MoleculeTable(
            **columns,
            centre=(np.cumsum(kept) - 1)[self.centre[tokens]],
            atom_token=np.searchsorted(tokens, self.atom_token[kept]),
            symmetries=symmetries,
        )

    def _atoms_of(self, key: tuple[int, int, int]) -> np.ndarray:
        """Return the atoms of a reference molecule, by entity, copy and component."""
        entity, copy, component = key
        tokens = (self.entity == entity) & (self.copy == copy) & (self.component == component)
        return np.flatnonzero(tokens[self.atom_token])


def molecule_table(atoms: Atoms, tokens: Tokens) -> MoleculeTable:
    """Return the molecules of a complex."""
    chain, molecule = atoms.chain[tokens.start], atoms.molecule[tokens.start]
    columns = {name: np.zeros(len(tokens), np.int64) for name in ("entity", "copy", "index", "component")}
    kinds: dict[tuple, int] = {}
    copies: dict[int, int] = defaultdict(int)
    symmetries = {}
    for chains in _bonded_chains(atoms):
        members = np.flatnonzero(np.isin(chain, chains))
        entity = kinds.setdefault(_key(atoms, chains, tokens.entity[members]), len(kinds) + 1)
        copies[entity] += 1
        references, component = np.unique(molecule[members], return_inverse=True)
        columns["entity"][members], columns["copy"][members] = entity, copies[entity]
        columns["index"][members], columns["component"][members] = np.arange(len(members)), component
        for number, reference in enumerate(atoms.molecules[k] for k in references):
            orders = equivalent_orders(reference.component, reference.kept)
            if len(orders) > 1:
                symmetries[entity, copies[entity], number] = orders
    is_ligand = atoms.kind[tokens.start] == MoleculeKind.LIGAND
    return MoleculeTable(
        **columns,
        is_ligand=is_ligand,
        centre=_centres(atoms, tokens),
        atom_token=tokens.atom_token,
        symmetries=symmetries,
    )


def _centres(atoms: Atoms, tokens: Tokens) -> np.ndarray:
    """Return the atom at the centre of each token, int [T]."""
    centre = tokens.start.copy()
    for row in np.flatnonzero(~tokens.is_atomized):
        names = atoms.name[tokens.start[row] : tokens.start[row] + tokens.count[row]].tolist()
        centre[row] += next(names.index(name) for name in _CENTRES if name in names)
    return centre


def _bonds_between_chains(atoms: Atoms) -> np.ndarray:
    """Return the bonds between atoms of different chains, int [B, 2]."""
    return atoms.bonds[atoms.chain[atoms.bonds[:, 0]] != atoms.chain[atoms.bonds[:, 1]]]


def _bonded_chains(atoms: Atoms) -> list[list[int]]:
    """Return the chains of each molecule, ascending."""
    molecule = np.arange(len(atoms.chains))
    for first, second in atoms.chain[_bonds_between_chains(atoms)]:
        molecule[molecule == molecule[second]] = molecule[first]
    return [np.flatnonzero(molecule == number).tolist() for number in dict.fromkeys(molecule.tolist())]


def _key(atoms: Atoms, chains: list[int], entities: np.ndarray) -> tuple:
    """Return a key that is equal for copies of a molecule: its tokens' entities and bonds between chains."""

    def position(atom: int) -> tuple[int, int, str]:
        return chains.index(atoms.chain[atom]), int(atoms.residue[atom]), atoms.name[atom]

    bonds = [pair for pair in _bonds_between_chains(atoms).tolist() if atoms.chain[pair[0]] in chains]
    return tuple(entities.tolist()), tuple(sorted(tuple(sorted(map(position, pair))) for pair in bonds))


def equivalent_orders(component: Component, kept: np.ndarray | None = None, most: int = 1000) -> np.ndarray:
    """Return the orders of a component's atoms that map each atom and bond to one of the same kind.

    Args:
        component: the component; handedness does not count, as in RDKit's symmetry-corrected RMSD.
        kept: bool [A], the atoms that are part of the structure; by default all.
        most: largest number of orders that are searched.

    Returns:
        int64 [P, n] for n atoms in the structure, the index of each atom's equivalent among them. The first
        order is the identity.
    """
    kept = np.ones(len(component), bool) if kept is None else kept
    identity = np.arange(len(component))
    try:
        molecule = build_molecule(component, chiral=False)
        found = molecule.GetSubstructMatches(molecule, uniquify=False, maxMatches=most, useChirality=False)
    except InvalidMolecule:
        found = ()
    orders = np.array([identity, *found])[:, kept]
    index = np.where(kept, np.cumsum(kept) - 1, -1)
    orders = index[orders]
    # ascending, which puts the identity first
    return np.unique(orders[(orders >= 0).all(axis=1)], axis=0)
