"""Molecules of structure files, for comparisons."""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import gemmi
import numpy as np

from foldcli.logs import logger
from model.comparison.chains import ComparedChain, ComparedLigand, ComparedMolecules, Residue
from msa.base.errors import InputError
from msa.io.structures import keep_one_conformer, listed, read_structure

_PROTEIN = {gemmi.PolymerType.PeptideL, gemmi.PolymerType.PeptideD}
_NUCLEIC_ACID = {gemmi.PolymerType.Dna, gemmi.PolymerType.Rna, gemmi.PolymerType.DnaRnaHybrid}
_MAX_BOND = 2.5  # Å, between the linked atoms of neighbouring residues


def read_molecules(path: str | os.PathLike[str]) -> ComparedMolecules:
    """Return the molecules of the first model of a file, with heavy atoms of one conformer.

    Raises:
        InputError: the file is not a structure, or has neither protein nor nucleic acid.
    """
    content = read_structure(path)
    remarks = list(content.remarks)
    structure = content.structure
    if len(structure) > 1:
        remarks.append(f"model 1 of {len(structure)} is used")
    structure.merge_chain_parts()
    keep_one_conformer(structure)
    chains, ligands, dropped = [], [], []
    names: Counter[str] = Counter()
    for chain in structure[0] if len(structure) else ():
        kind = chain.get_polymer().check_polymer_type()
        polymer = [residue for residue in chain.get_polymer() if _heavy_atoms(residue)]
        if polymer and kind in _PROTEIN | _NUCLEIC_ACID:
            chains.append(_chain(chain.name, polymer, kind in _PROTEIN))
        elif len(polymer):
            dropped.append(f"chain {chain.name}")
        for residue in chain:
            if residue.entity_type == gemmi.EntityType.NonPolymer and _heavy_atoms(residue):
                name = f"{chain.name}:{residue.name}{residue.seqid}"
                names[name] += 1  # several, such as poses of docking, may have one number
                ligands.append(_ligand(f"{name}.{names[name]}" if names[name] > 1 else name, residue))
            elif residue.entity_type not in (gemmi.EntityType.Polymer, gemmi.EntityType.Water):
                dropped.append(f"{residue.name} {chain.name}{residue.seqid}")
    if not chains:
        raise InputError("neither protein nor nucleic acid to compare", path)
    if dropped:
        remarks.append(f"not compared: {listed(dropped)}")
    for remark in remarks:
        logger.info("%s: %s", path, remark)
    return ComparedMolecules(chains, ligands)


def _chain(name: str, polymer: list[gemmi.Residue], is_protein: bool) -> ComparedChain:
    link = ("C", "N") if is_protein else ("O3'", "P")
    return ComparedChain(
        name,
        "CA" if is_protein else "C3'",
        [residue.name for residue in polymer],
        list(_breaks(polymer, *link)),
        [_atoms(residue) for residue in polymer],
    )


def _atoms(residue: gemmi.Residue) -> Residue:
    return {atom.name.replace("*", "'"): np.array(atom.pos.tolist()) for atom in _heavy_atoms(residue)}


def _heavy_atoms(residue: gemmi.Residue) -> list[gemmi.Atom]:
    """Return the atoms that have coordinates, without hydrogens."""
    return [atom for atom in residue if not atom.is_hydrogen() and np.isfinite(atom.pos.tolist()).all()]


def _breaks(polymer: list[gemmi.Residue], last: str, first: str) -> Iterator[bool]:
    """Yield, for each residue but the last, True if it is not bonded to the next one."""
    for residue, following in pairwise(polymer):
        a, b = residue.find_atom(last, "*"), following.find_atom(first, "*")
        yield a is None or b is None or a.pos.dist(b.pos) > _MAX_BOND


def _ligand(name: str, residue: gemmi.Residue) -> ComparedLigand:
    atoms = _heavy_atoms(residue)
    return ComparedLigand(
        name,
        [atom.name for atom in atoms],
        [atom.element.name for atom in atoms],
        np.array([atom.element.covalent_r for atom in atoms]),
        np.array([atom.pos.tolist() for atom in atoms]).reshape(-1, 3),
    )
