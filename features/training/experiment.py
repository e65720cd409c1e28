"""Experimental structures of complexes as jobs with known coordinates, for training.

A structure is read as its first biological assembly: proteins, DNA, RNA, ligands, ions and glycans, modified
residues, and covalent bonds that no sequence implies. Water and hydrogens are left out, disulfide bonds and
metal coordination are no bonds, and of alternative locations the one with the highest occupancy counts.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import gemmi
import numpy as np

from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import Bond, BondedAtom, Entity, Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.components import UnknownComponent, read_component
from features.chemistry.residue_classes import MoleculeKind, sequence_letter
from msa.base.errors import InputError
from msa.io.structures import listed, parent_letter, polymer_sequence, read_structure

_KINDS = {
    gemmi.PolymerType.PeptideL: MoleculeKind.PROTEIN,
    gemmi.PolymerType.Rna: MoleculeKind.RNA,
    gemmi.PolymerType.Dna: MoleculeKind.DNA,
}
# coordinates of one chain by residue number and atom name
Coordinates = dict[tuple[int, str], tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class ExperimentalComplex:
    """A complex whose structure is known.

    Attributes:
        job: its molecules; chains have the names of the file, with a number for further copies.
        positions: float32 [A, 3] in Å; 0 where not resolved.
        resolved: bool [A].
        release_date: first release of the entry, YYYY-MM-DD; None if unknown.
        remarks: lines about what was left out.
    """

    job: MoleculeJob
    atoms: Atoms
    positions: np.ndarray = field(repr=False)
    resolved: np.ndarray = field(repr=False)
    release_date: str | None
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Copy:
    """A chain of the assembly: its name, the chain of the file, and how it is moved."""

    name: str
    chain: str
    operator: int
    transform: gemmi.Transform | None


def read_complex(path: str | os.PathLike[str], max_chains: int = 300) -> ExperimentalComplex:
    """Read an mmCIF or PDB file, compressed or not.

    Args:
        path: the file.
        max_chains: largest number of chains of the assembly, ligands included.

    Raises:
        InputError: the file is not a structure, is damaged, has no molecule that can be used or too many
            chains, or has a bond to an atom that its residue does not have.
    """
    file = read_structure(path, keep_modified=True)
    structure, remarks = file.structure, list(file.remarks)
    if len(structure) == 0:
        raise InputError("no coordinates", path)
    model = structure[0]
    copies = list(_assembly(structure, remarks))
    if len(copies) > max_chains:
        raise InputError(f"the assembly has {len(copies):,} chains; at most {max_chains:,} are used", path)
    entities: dict[tuple, tuple[Entity, list[_Copy]]] = {}
    numbers: dict[str, dict[str, int]] = {}
    for copy in copies:
        span = model.get_subchain(copy.chain)
        entity = _entity(structure, copy.chain, span, remarks)
        if entity is not None:
            numbers[copy.chain] = _residue_numbers(structure, span, entity)
            entities.setdefault(_key(entity), (entity, []))[1].append(copy)
    if not entities:
        raise InputError("no protein, nucleic acid or ligand that can be used", path)
    used = list(entities.values())
    job = MoleculeJob(
        structure.name or "structure",
        tuple(replace(entity, chains=tuple(copy.name for copy in chains)) for entity, chains in used),
        tuple(_bonds(structure, [copy for _, chains in used for copy in chains], numbers)),
        path=str(path),
    )
    atoms = build_atoms(job)
    known = {
        copy.name: _coordinates(model.get_subchain(copy.chain), numbers[copy.chain], copy)
        for _, chains in used
        for copy in chains
    }
    found = [position for chain in known.values() for position in chain.values()]
    if missing := sum(not math.isfinite(sum(position)) for position in found):
        remarks.append(f"atoms without coordinates: {missing}")
    positions, resolved = _atom_positions(atoms, known)
    if not resolved.any():
        raise InputError("no atom of a known component has coordinates", path)
    return ExperimentalComplex(
        job, atoms, positions, resolved, file.release_date, tuple(dict.fromkeys(remarks))
    )


def _assembly(structure: gemmi.Structure, remarks: list[str]) -> Iterator[_Copy]:
    """Yield the chains of the first assembly, or of the model if the file describes none."""
    chains = [span.subchain_id() for span in structure[0].subchains()]
    if not structure.assemblies:
        for chain in chains:
            yield _Copy(chain, chain, 0, None)
        return
    if len(structure.assemblies) > 1:
        remarks.append(f"assembly {structure.assemblies[0].name} of {len(structure.assemblies)} is used")
    operator, seen = 0, dict.fromkeys(chains, 0)
    for generator in structure.assemblies[0].generators:
        names = list(generator.subchains) or [
            span.subchain_id()
            for chain in structure[0]
            if chain.name in generator.chains
            for span in chain.subchains()
        ]
        for operation in generator.operators:
            operator += 1
            for chain in names:
                if chain in seen:
                    seen[chain] += 1
                    suffix = f"-{seen[chain]}" if seen[chain] > 1 else ""
                    yield _Copy(chain + suffix, chain, operator, operation.transform)


def _entity(
    structure: gemmi.Structure, chain: str, span: gemmi.ResidueSpan, remarks: list[str]
) -> Entity | None:
    """Return the molecule of a chain, without names of chains; None if it is not used."""
    entity = structure.get_entity_of(span)
    if entity is None or entity.entity_type == gemmi.EntityType.Water:
        return None
    if entity.entity_type != gemmi.EntityType.Polymer:
        codes = tuple(residue.name for residue in span)
        unknown = [code for code in codes if not _is_known(code)]
        if unknown:
            remarks.append(f"chain {chain} is left out: unknown component {listed(sorted(set(unknown)))}")
            return None
        return Ligand((), codes)
    kind = _KINDS.get(entity.polymer_type)
    if kind is None:
        remarks.append(f"chain {chain} is left out: polymer of type {entity.polymer_type.name}")
        return None
    names, _ = polymer_sequence(entity, span)
    letters = [sequence_letter(name, kind) for name in names]
    modifications = []
    for position, (name, letter) in enumerate(zip(names, letters, strict=True), 1):
        if letter is None:
            letters[position - 1] = parent_letter(name) if kind == MoleculeKind.PROTEIN else "N"
            if _is_known(name):
                modifications.append(Modification(position, name))
            else:
                remarks.append(f"chain {chain}: {name} is not in the dictionary of components")
    return Polymer(kind, "".join(map(str, letters)), (), tuple(modifications))


def _is_known(code: str) -> bool:
    """Return whether the dictionary has a component with atoms to place."""
    try:
        return code not in ("UNL", "UNX") and len(read_component(code)) > 0
    except UnknownComponent:
        return False


def _key(entity: Entity) -> tuple:
    """Return a key that is equal for copies of one molecule."""
    if isinstance(entity, Ligand):
        return ("ligand", *entity.codes)
    return (entity.kind, entity.sequence, entity.modifications)


def _residue_numbers(structure: gemmi.Structure, span: gemmi.ResidueSpan, entity: Entity) -> dict[str, int]:
    """Return the 1-based number in the job of each residue of a chain, by name and number in the file."""
    indices = list(range(len(span)))
    if isinstance(entity, Polymer):
        _, indices = polymer_sequence(structure.get_entity_of(span), span)
    return {
        f"{residue.seqid} {residue.name}": index + 1 for index, residue in zip(indices, span, strict=True)
    }


def _bonds(
    structure: gemmi.Structure, copies: list[_Copy], numbers: dict[str, dict[str, int]]
) -> Iterator[Bond]:
    """Yield the covalent bonds between residues that have the same symmetry operation."""
    seen = set()
    for connection in structure.connections:
        if connection.type != gemmi.ConnectionType.Covale or connection.asu == gemmi.Asu.Different:
            continue
        partners = connection.partner1, connection.partner2
        found = [(structure[0].find_cra(partner), partner.atom_name) for partner in partners]
        if any(end.residue is None for end, _ in found):
            continue
        ends = [
            (end.residue.subchain, f"{end.residue.seqid} {end.residue.name}", name) for end, name in found
        ]
        for operator in sorted({copy.operator for copy in copies}):
            names = {copy.chain: copy.name for copy in copies if copy.operator == operator}
            if any(chain not in names or residue not in numbers[chain] for chain, residue, _ in ends):
                continue
            first, second = (
                BondedAtom(names[chain], numbers[chain][residue], name) for chain, residue, name in ends
            )
            pair = frozenset((first, second))
            if pair not in seen and not _in_polymer(first, second, structure, ends[0][0]):
                seen.add(pair)
                yield Bond(first, second)


def _in_polymer(first: BondedAtom, second: BondedAtom, structure: gemmi.Structure, chain: str) -> bool:
    """Return whether a bond joins neighbours of one polymer, as its sequence implies."""
    entity = structure.get_entity_of(structure[0].get_subchain(chain))
    is_polymer = entity is not None and entity.entity_type == gemmi.EntityType.Polymer
    neighbours = first.chain == second.chain and abs(first.residue - second.residue) == 1
    return is_polymer and neighbours and {first.atom, second.atom} in ({"C", "N"}, {"O3'", "P"})


def _coordinates(span: gemmi.ResidueSpan, numbers: dict[str, int], copy: _Copy) -> Coordinates:
    """Return the coordinates of a copy's atoms, those with the highest occupancy."""
    best: dict[tuple[int, str], gemmi.Atom] = {}
    for residue in span:
        number = numbers[f"{residue.seqid} {residue.name}"]
        for atom in residue:
            key = number, atom.name
            if atom.occ > 0 and (key not in best or atom.occ > best[key].occ):
                best[key] = atom
    moved = {}
    for key, atom in best.items():
        position = atom.pos if copy.transform is None else copy.transform.apply(atom.pos)
        moved[key] = (position.x, position.y, position.z)
    return moved


def _atom_positions(atoms: Atoms, known: dict[str, Coordinates]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of atoms [A, 3], and which of them are known, bool [A]."""
    positions = np.zeros((len(atoms), 3), np.float32)
    resolved = np.zeros(len(atoms), bool)
    names = [chain.name for chain in atoms.chains]
    rows = zip(atoms.chain.tolist(), atoms.residue.tolist(), atoms.name, strict=True)
    for index, (chain, residue, name) in enumerate(rows):
        position = known[names[chain]].get((residue, name))
        if position is not None and np.isfinite(position).all():
            positions[index], resolved[index] = position, True
    return positions, resolved
