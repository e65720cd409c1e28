"""The atoms of a job, with the reference molecule that each belongs to and the bonds between them.

Atoms that leave when residues are linked are left out: those of polymer bonds in every residue of a polymer,
as the network's authors do, and one at each end of a declared bond.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from features.assembly.job import Bond, BondedAtom, Ligand, MoleculeJob, Polymer
from features.chemistry.components import Component, UnknownComponent, parse_components, read_component
from features.chemistry.molecules import InvalidMolecule, join_components, parse_smiles
from features.chemistry.residue_classes import LEAVING_ATOMS, MoleculeKind, component_code
from msa.base.errors import InputError

# with fewer residues, the bond that closes the ring would join neighbours
_MIN_CYCLIC = 3


class UnknownAtom(InputError):
    """An atom that a residue does not have."""


@dataclass(eq=False)
class Residue:
    """A residue of a polymer or of a ligand.

    Attributes:
        number: 1-based number in its chain.
        leaving: bool [A], whether an atom of the component is left out.
        joined: bool [A], those of them that leave at bonds to residues of the same ligand.
    """

    component: Component
    number: int
    leaving: np.ndarray
    joined: np.ndarray


@dataclass(frozen=True, eq=False)
class MoleculeChain:
    """One copy of an entity."""

    name: str
    entity: Polymer | Ligand
    entity_index: int
    kind: MoleculeKind
    residues: tuple[Residue, ...]


@dataclass(frozen=True, eq=False)
class ReferenceMolecule:
    """A molecule that gets one reference conformer: a residue, or a whole ligand.

    Attributes:
        component: the molecule; also has atoms that are left out.
        kept: bool [A], the atoms that are predicted.
        in_polymer: whether it is a residue of a polymer.
    """

    component: Component
    kept: np.ndarray
    in_polymer: bool


@dataclass(frozen=True, eq=False)
class Atoms:
    """All atoms that are predicted, chain by chain and residue by residue.

    Attributes:
        molecules: the reference molecules; those of a chain are adjacent.
        chain: int [A], index of the chain.
        residue: int [A], 1-based number of the residue in its chain.
        code: object [A], component code of the residue.
        name: object [A], atom name.
        element: object [A], symbol.
        molecule: int [A], index of the reference molecule.
        kind: int [A], kind of chain.
        bonds: int [B, 2], covalent bonds, within residues and between them.
    """

    chains: tuple[MoleculeChain, ...]
    molecules: tuple[ReferenceMolecule, ...]
    chain: np.ndarray = field(repr=False)
    residue: np.ndarray = field(repr=False)
    code: np.ndarray = field(repr=False)
    name: np.ndarray = field(repr=False)
    element: np.ndarray = field(repr=False)
    molecule: np.ndarray = field(repr=False)
    kind: np.ndarray = field(repr=False)
    bonds: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.chain)


def build_atoms(job: MoleculeJob) -> Atoms:
    """Return the atoms of a job.

    Raises:
        InputError: an unknown component, a SMILES string that RDKit cannot read, a modification outside its
            sequence, two chains with one id, or a bond to an atom that does not exist.
    """
    chains = _build_chains(job)
    ends = _resolve_bonds(job, chains)
    _remove_leaving_atoms(ends)
    return _collect(chains, ends)


@dataclass(frozen=True, eq=False)
class _BondEnd:
    """An end of a declared bond: chain, residue in the chain and atom of the residue's component."""

    chain: int
    residue: Residue
    atom: int


def _build_chains(job: MoleculeJob) -> tuple[MoleculeChain, ...]:
    """Return every copy of every entity."""
    user_components = parse_components(job.components, job.path) if job.components else {}
    user_components = {code.upper(): component for code, component in user_components.items()}
    drawn = sorted({entity.smiles for entity in job.entities if isinstance(entity, Ligand) and entity.smiles})
    free_names = (name for name in map("LIG{}".format, itertools.count()) if name not in user_components)
    names = dict(zip(drawn, free_names, strict=False))
    chains: list[MoleculeChain] = []
    seen: set[str] = set()
    for index, entity in enumerate(job.entities):
        if isinstance(entity, Polymer) and entity.is_cyclic and len(entity.sequence) < _MIN_CYCLIC:
            reason = f"a cyclic chain needs {_MIN_CYCLIC} residues, and this one has {len(entity.sequence)}"
            raise InputError(reason, *job.location_of(entity))
        components = _entity_components(job, entity, names, user_components)
        kind = entity.kind if isinstance(entity, Polymer) else MoleculeKind.LIGAND
        for name in entity.chains:
            if name in seen:
                raise InputError(f"two chains are called {name!r}", *job.location_of(entity))
            seen.add(name)
            residues = tuple(
                Residue(component, number, leaving.copy(), np.zeros(len(component), bool))
                for number, (component, leaving) in enumerate(components, 1)
            )
            chains.append(MoleculeChain(name, entity, index, kind, residues))
    return tuple(chains)


def _entity_components(
    job: MoleculeJob,
    entity: Polymer | Ligand,
    smiles_names: dict[str, str],
    user_components: dict[str, Component],
) -> list[tuple[Component, np.ndarray]]:
    """Return the components of an entity, and which of their atoms leave at polymer bonds."""

    def read(code: str) -> Component:
        try:
            component = user_components.get(code.upper()) or read_component(code)
        except UnknownComponent:
            raise UnknownComponent(code, *job.location_of(entity)) from None
        if not component:
            raise InputError(f"component {code!r} has no atoms besides hydrogens", *job.location_of(entity))
        return component

    if isinstance(entity, Polymer):
        return _polymer_components(job, entity, read)
    if entity.smiles is not None:
        try:
            components = [parse_smiles(entity.smiles, smiles_names[entity.smiles])]
        except InvalidMolecule as error:
            raise InvalidMolecule(error.reason, *job.location_of(entity)) from None
    else:
        components = [read(code) for code in entity.codes]
    return [(component, np.zeros(len(component), bool)) for component in components]


def _polymer_components(
    job: MoleculeJob, entity: Polymer, read: Callable[[str], Component]
) -> list[tuple[Component, np.ndarray]]:
    """Return the components of a polymer, and which of their atoms leave."""
    modified: dict[int, str] = {}
    for modification in entity.modifications:
        where = f"modification {modification.code} at position {modification.position:,}"
        if not 1 <= modification.position <= len(entity.sequence):
            reason = f"{where}: the sequence has {len(entity.sequence):,} residues"
            raise InputError(reason, *job.location_of(entity))
        if modification.position in modified:
            raise InputError(f"{where}: the position has another one", *job.location_of(entity))
        modified[modification.position] = modification.code
    default = LEAVING_ATOMS[entity.kind]
    result = []
    for position, letter in enumerate(entity.sequence, 1):
        component = read(modified.get(position) or component_code(letter, entity.kind))
        links, is_protein = component.link_atoms, entity.kind == MoleculeKind.PROTEIN
        if position in modified and links is not None and ("N" in links) != is_protein:
            kind = "a protein" if is_protein else entity.kind.name
            reason = f"modification {component.code} at position {position:,}: its type is {component.type}"
            raise InputError(f"{reason}, which cannot be in {kind}", *job.location_of(entity))
        leaving = np.array([name in default for name in component.names], bool)
        if position in modified and component.leaving.any():
            leaving = component.leaving.copy()
        result.append((component, leaving))
    return result


def _resolve_bonds(job: MoleculeJob, chains: Sequence[MoleculeChain]) -> list[tuple[_BondEnd, _BondEnd]]:
    index = {chain.name: number for number, chain in enumerate(chains)}
    seen: set[frozenset[tuple[int, int, int]]] = set()
    result = []
    for bond in job.bonds:
        first, second = (_resolve_end(job, bond, end, chains, index) for end in (bond.first, bond.second))
        pair = frozenset((end.chain, end.residue.number, end.atom) for end in (first, second))
        if len(pair) == 1:
            raise InputError(f"bond of {bond.first} to itself", job.path, bond.line)
        if first.residue is second.residue and isinstance(chains[first.chain].entity, Polymer):
            reason = f"bond between {bond.first} and {bond.second}, which are atoms of one residue"
            raise InputError(reason, job.path, bond.line)
        if pair in seen:
            raise InputError(f"two bonds between {bond.first} and {bond.second}", job.path, bond.line)
        seen.add(pair)
        result.append((first, second))
    return result


def _resolve_end(
    job: MoleculeJob, bond: Bond, end: BondedAtom, chains: Sequence[MoleculeChain], index: dict[str, int]
) -> _BondEnd:
    """Return an end of a bond; raise InputError if there is no such atom."""
    if end.chain not in index:
        raise UnknownAtom(f"bond to {end}: no chain {end.chain!r}", job.path, bond.line)
    residues = chains[index[end.chain]].residues
    if not 1 <= end.residue <= len(residues):
        reason = f"bond to {end}: the chain has {len(residues):,} residues"
        raise UnknownAtom(reason, job.path, bond.line)
    residue = residues[end.residue - 1]
    atom = residue.component.index(end.atom)
    if atom is None:
        names = ", ".join(residue.component.names)
        reason = f"bond to {end}: {residue.component.code} has no atom {end.atom!r}; its atoms: {names}"
        raise UnknownAtom(reason, job.path, bond.line)
    if residue.leaving[atom]:
        reason = f"bond to {end}: {end.atom} leaves when {residue.component.code} is linked in a polymer"
        raise UnknownAtom(reason, job.path, bond.line)
    return _BondEnd(index[end.chain], residue, atom)


def _remove_leaving_atoms(ends: Sequence[tuple[_BondEnd, _BondEnd]]) -> None:
    """Mark one leaving neighbour of each bonded atom, unless it is itself bonded, as left out."""
    bonded = {(id(end.residue), end.atom) for pair in ends for end in pair}
    for pair in ends:
        for end in pair:
            component, leaving = end.residue.component, end.residue.leaving
            for first, second, _ in component.bonds:
                if end.atom not in (first, second):
                    continue
                other = int(first + second - end.atom)
                free = component.leaving[other] and not leaving[other]
                if free and (id(end.residue), other) not in bonded:
                    leaving[other] = True
                    end.residue.joined[other] = pair[0].chain == pair[1].chain
                    break


def _collect(chains: tuple[MoleculeChain, ...], ends: Sequence[tuple[_BondEnd, _BondEnd]]) -> Atoms:
    """Return the table of atoms of chains whose leaving atoms are known."""
    rows: dict[str, list[np.ndarray]] = {key: [] for key in ("chain", "residue", "code", "name", "element")}
    molecules: list[ReferenceMolecule] = []
    molecule_rows: list[np.ndarray] = []
    starts: dict[int, int] = {}
    total = 0
    for number, chain in enumerate(chains):
        for residue in chain.residues:
            kept = ~residue.leaving
            count = int(kept.sum())
            starts[id(residue)] = total
            total += count
            rows["chain"].append(np.full(count, number))
            rows["residue"].append(np.full(count, residue.number))
            rows["code"].append(np.full(count, residue.component.code, object))
            rows["name"].append(np.array(residue.component.names, object)[kept])
            rows["element"].append(np.array(residue.component.elements, object)[kept])
        added = _reference_molecules(chain, [pair for pair in ends if {e.chain for e in pair} == {number}])
        for molecule in added:
            molecule_rows.append(np.full(int(molecule.kept.sum()), len(molecules)))
            molecules.append(molecule)
    table = {key: np.concatenate(values) for key, values in rows.items()}
    kind = np.array([chain.kind for chain in chains])[table["chain"]]
    return Atoms(
        chains,
        tuple(molecules),
        **table,
        molecule=np.concatenate(molecule_rows),
        kind=kind,
        bonds=_all_bonds(chains, ends, starts),
    )


def _reference_molecules(
    chain: MoleculeChain, inner: Sequence[tuple[_BondEnd, _BondEnd]]
) -> list[ReferenceMolecule]:
    """Return the molecules of a chain: each residue, or the joined residues of a ligand."""
    if chain.kind != MoleculeKind.LIGAND or len(chain.residues) == 1 or not inner:
        return [
            ReferenceMolecule(residue.component, ~residue.leaving, chain.kind != MoleculeKind.LIGAND)
            for residue in chain.residues
        ]
    bonds = [(a.residue.number - 1, a.atom, b.residue.number - 1, b.atom) for a, b in inner]
    joined = [residue.joined for residue in chain.residues]
    component = join_components([residue.component for residue in chain.residues], bonds, joined)
    leaving = np.concatenate([residue.leaving[~residue.joined] for residue in chain.residues])
    return [ReferenceMolecule(component, ~leaving, False)]


def _all_bonds(
    chains: Sequence[MoleculeChain], ends: Sequence[tuple[_BondEnd, _BondEnd]], starts: dict[int, int]
) -> np.ndarray:
    """Return the bonds within residues, of polymers, and those declared: int64 [B, 2]."""

    def row(residue: Residue, atom: int) -> int:
        return starts[id(residue)] + atom - int(residue.leaving[:atom].sum())

    bonds: list[np.ndarray] = []
    pairs: list[tuple[int, int]] = []
    for chain in chains:
        for residue in chain.residues:
            inner = residue.component.bonds[:, :2]
            inner = inner[~residue.leaving[inner].any(1)]
            position = np.cumsum(~residue.leaving) - 1
            bonds.append(starts[id(residue)] + position[inner])
        if chain.kind == MoleculeKind.LIGAND:
            continue
        following_residues = list(chain.residues[1:])
        if isinstance(chain.entity, Polymer) and chain.entity.is_cyclic:
            following_residues.append(chain.residues[0])
        for current, following in zip(chain.residues, following_residues, strict=False):
            link = _link(current, following)
            if link is not None:
                pairs.append((row(current, link[0]), row(following, link[1])))
    pairs += [(row(first.residue, first.atom), row(second.residue, second.atom)) for first, second in ends]
    return np.concatenate([*bonds, np.array(pairs, np.int64).reshape(-1, 2)])


def _link(current: Residue, following: Residue) -> tuple[int, int] | None:
    """Return the atoms of the bond between two neighbours in a polymer; None if they cannot form one."""
    names = current.component.link_atoms
    if names is None or following.component.link_atoms != names:
        return None
    first, second = current.component.index(names[0]), following.component.index(names[1])
    if first is None or second is None or current.leaving[first] or following.leaving[second]:
        return None
    return first, second
