"""Tokens of a job: one per standard residue, one per atom of all else (AlphaFold 3 supplement, 2.6)."""

from dataclasses import dataclass, field

import numpy as np

from features.assembly.atoms import Atoms, build_atoms
from features.assembly.job import Ligand, MoleculeJob, Polymer
from features.chemistry.residue_classes import STANDARD_CODES, MoleculeKind

# bonds between residues that a polymer implies; any other one turns both residues into single atoms
_POLYMER_BONDS = (frozenset({"N", "C"}), frozenset({"P", "O3'", "O5'"}))


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a job.

    Attributes:
        start: int [T], index of a token's first atom.
        count: int [T], number of its atoms.
        atom_token: int [A], token of each atom.
        is_atomized: bool [T], whether a token is an atom of a residue.
        entity: int [T], 1-based number of the entity.
        copy: int [T], 1-based number of the copy among the chains of its entity.
        chain: int [T], 1-based number of the chain, in the order of the chain ids as text.
        bonds: int [B, 2], pairs of bonded tokens where both are single atoms.
    """

    start: np.ndarray = field(repr=False)
    count: np.ndarray = field(repr=False)
    atom_token: np.ndarray = field(repr=False)
    is_atomized: np.ndarray = field(repr=False)
    entity: np.ndarray = field(repr=False)
    copy: np.ndarray = field(repr=False)
    chain: np.ndarray = field(repr=False)
    bonds: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.start)


def build_tokens(atoms: Atoms) -> Tokens:
    """Return the tokens of a job's atoms."""
    is_first = residue_starts(atoms)
    residue = np.cumsum(is_first) - 1
    standard = np.isin(atoms.code.astype(str), STANDARD_CODES) & (atoms.kind != MoleculeKind.LIGAND)
    atomized = ~standard | np.isin(residue, _linked_residues(atoms, residue))
    starts = np.flatnonzero(is_first | atomized)
    count = np.diff([*starts, len(atoms)])
    atom_token = np.repeat(np.arange(len(starts)), count)
    entity, copy, rank = _chain_numbers(atoms)
    token_chain = atoms.chain[starts]
    bonds = atoms.bonds[atomized[atoms.bonds].all(1)]
    return Tokens(
        starts,
        count,
        atom_token,
        atomized[starts],
        entity[token_chain],
        copy[token_chain],
        rank[token_chain],
        atom_token[bonds],
    )


@dataclass(frozen=True)
class JobSize:
    """The size of a job.

    Attributes:
        rows: most rows of an alignment that the job itself gives, its query included; 0 without.
    """

    tokens: int
    atoms: int
    chains: int
    rows: int


def job_size(job: MoleculeJob) -> JobSize:
    """Return the size of a job, without conformers and searches."""
    atoms = build_atoms(job)
    alignments = [each for polymer in job.polymers() for each in (polymer.alignment, polymer.paired)]
    rows = max((len(each) for each in alignments if each is not None), default=0)
    return JobSize(len(build_tokens(atoms)), len(atoms), len(atoms.chains), rows)


def residue_starts(atoms: Atoms) -> np.ndarray:
    """Return whether an atom is the first of its residue: bool [A]."""
    starts = np.ones(len(atoms), bool)
    starts[1:] = (np.diff(atoms.chain) != 0) | (np.diff(atoms.residue) != 0)
    return starts


def _linked_residues(atoms: Atoms, residue: np.ndarray) -> np.ndarray:
    """Return the residues that have a bond to another one which is not a bond of a polymer."""
    between = atoms.bonds[residue[atoms.bonds[:, 0]] != residue[atoms.bonds[:, 1]]]
    implied = np.zeros(len(between), bool)
    for names in _POLYMER_BONDS:
        implied |= np.isin(atoms.name[between].astype(str), list(names)).all(1)
    return np.unique(residue[between[~implied]])


def _chain_numbers(atoms: Atoms) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of entity, copy and chain id of each chain.

    Entities are numbered in the order of their sequences, codes or SMILES strings as text. Chains with the
    same text are one entity unless their kinds or modifications differ.
    """
    keys = [_entity_key(chain.entity) for chain in atoms.chains]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)), 1)}
    entity = np.array([numbers[key] for key in keys])
    copy = np.array([keys[: index + 1].count(key) for index, key in enumerate(keys)])
    names = [chain.name for chain in atoms.chains]
    ranks = {name: number for number, name in enumerate(sorted(names), 1)}
    return entity, copy, np.array([ranks[name] for name in names])


def _entity_key(entity: Polymer | Ligand) -> tuple[str, int, tuple[tuple[int, str], ...]]:
    """Return a key that is equal for the copies of one entity."""
    if isinstance(entity, Polymer):
        modifications = tuple(sorted((item.position, item.code) for item in entity.modifications))
        return entity.sequence, int(entity.kind), modifications
    if entity.smiles is not None:  # may read like a code, such as CO, which is methanol and cobalt
        return entity.smiles, int(MoleculeKind.LIGAND) + 1, ()
    return "-".join(entity.codes), int(MoleculeKind.LIGAND), ()
