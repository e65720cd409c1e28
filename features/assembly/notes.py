"""Facts about a job's molecules that a user may not expect, in words."""

import numpy as np

from features.assembly.atoms import Atoms, MoleculeChain
from features.assembly.job import Ligand, Polymer
from features.assembly.tokens import Tokens, residue_starts
from features.chemistry.components import one_letter_code
from msa.io.structures import listed

_UNKNOWN_LETTERS = "XN"


def molecule_notes(atoms: Atoms, tokens: Tokens) -> list[str]:
    """Return one sentence for each fact about the molecules of a job that its user may not expect.

    These are letters without a residue, modifications of other residues, neighbours in a polymer and parts of
    a ligand that are not bonded, bonds to atoms of SMILES strings, and bonds that the network does not see.
    """
    residue = np.cumsum(residue_starts(atoms)) - 1
    ends = np.sort(residue[atoms.bonds], axis=1)
    bonded = set(map(tuple, ends[ends[:, 0] != ends[:, 1]].tolist()))
    notes: list[str] = []
    first = 0
    for chain in atoms.chains:
        count = len(chain.residues)
        if isinstance(chain.entity, Polymer):
            if chain.name == chain.entity.chains[0]:
                notes += _letter_notes(chain, chain.entity)
                notes += _open_links(chain, first, bonded)
        elif not _is_connected(first, count, bonded):
            codes = "-".join(each.component.code for each in chain.residues)
            notes.append(f"chain {chain.name}: {codes}: the job has no bonds that join these components")
        first += count
    return notes + _smiles_bonds(atoms, residue) + _unseen_bonds(atoms, tokens, residue)


def _letter_notes(chain: MoleculeChain, polymer: Polymer) -> list[str]:
    """Return notes on letters of a sequence that its residues do not have."""
    modified = {item.position for item in polymer.modifications}
    unknown, other = [], []
    for residue, letter in zip(chain.residues, polymer.sequence, strict=True):
        code = residue.component.code
        if residue.number not in modified:
            if code == "UNK":
                unknown.append(f"{letter}{residue.number}")
        elif residue.component.given_name is None and letter not in _UNKNOWN_LETTERS:
            usual = one_letter_code(code)
            if len(usual) == 1 and usual not in ("?", letter) and {usual, letter} != {"T", "U"}:
                other.append(f"{code} ({usual}) instead of {letter}{residue.number}")
    names = ", ".join(polymer.chains)
    notes = []
    if unknown:
        notes.append(f"chain {names}: predicted as unknown amino acids (UNK): {listed(unknown)}")
    if other:
        notes.append(f"chain {names}: modifications of other residues: {listed(other)}")
    return notes


def _open_links(chain: MoleculeChain, first: int, bonded: set[tuple[int, ...]]) -> list[str]:
    """Return a note on neighbours in a polymer that are not bonded."""
    residues = chain.residues
    following = list(residues[1:])
    if isinstance(chain.entity, Polymer) and chain.entity.is_cyclic:
        following.append(residues[0])
    gaps = [
        f"{a.component.code} {a.number} and {b.component.code} {b.number}"
        for a, b in zip(residues, following, strict=False)
        if tuple(sorted((first + a.number - 1, first + b.number - 1))) not in bonded
    ]
    if not gaps:
        return []
    return [f"chain {chain.name}: no bond between {listed(gaps)}, because of their types in the dictionary"]


def _is_connected(first: int, count: int, bonded: set[tuple[int, ...]]) -> bool:
    """Return whether bonds join all residues of a ligand, which may lead through other chains."""
    if count == 1:
        return True
    reached, pending = {first}, [first]
    while pending:
        current = pending.pop()
        near = {a + b - current for a, b in bonded if current in (a, b)} - reached
        reached |= near
        pending += near
    return all(index in reached for index in range(first, first + count))


def _described(atoms: Atoms, bonds: np.ndarray) -> list[str]:
    """Return bonds [B, 2] in words, such as `A:7:SG–B:1:C1`."""
    return [
        "–".join(f"{atoms.chains[atoms.chain[i]].name}:{atoms.residue[i]}:{atoms.name[i]}" for i in bond)
        for bond in bonds
    ]


def _smiles_bonds(atoms: Atoms, residue: np.ndarray) -> list[str]:
    """Return a note on bonds to atoms of SMILES strings, which other programs name otherwise."""
    smiles = np.array([isinstance(x.entity, Ligand) and x.entity.smiles is not None for x in atoms.chains])
    one, other = atoms.bonds.T
    of_smiles = smiles[atoms.chain[one]] | smiles[atoms.chain[other]]
    bonds = _described(atoms, atoms.bonds[of_smiles & (residue[one] != residue[other])])
    if not bonds:
        return []
    return [f"atoms of SMILES strings are counted by element in the order of the string: {listed(bonds)}"]


def _unseen_bonds(atoms: Atoms, tokens: Tokens, residue: np.ndarray) -> list[str]:
    """Return a note on bonds of the job with the atom names of bonds of polymers.

    The network sees bonds between single atoms only, and such a bond does not turn a residue into atoms.
    """
    one, other = atoms.bonds.T
    is_atom = tokens.is_atomized[tokens.atom_token]
    same = atoms.chain[one] == atoms.chain[other]
    cyclic = np.array([isinstance(x.entity, Polymer) and x.entity.is_cyclic for x in atoms.chains], bool)
    implied = same & ((np.abs(residue[one] - residue[other]) <= 1) | cyclic[atoms.chain[one]])
    unseen = _described(atoms, atoms.bonds[~implied & ~(is_atom[one] & is_atom[other])])
    if not unseen:
        return []
    return [f"bonds that the network does not see, as their atoms are those of polymers: {listed(unseen)}"]
