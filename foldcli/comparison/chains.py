"""Protein chains of structure files, for comparisons."""

import os

import numpy as np

from foldcli.logs import logger
from model.comparison.chains import ProteinChain
from msa.base.errors import InputError
from msa.io.structures import parent_letter, read_structure


def read_chains(path: str | os.PathLike[str]) -> list[ProteinChain]:
    """Return the protein chains of the first model of a file, with heavy atoms of the first conformer.

    Raises:
        InputError: the file is not a structure, or has no protein.
    """
    content = read_structure(path)
    for remark in content.remarks:
        logger.info("%s: %s", path, remark)
    structure = content.structure
    structure.remove_alternative_conformations()
    chains, others = [], set()
    for chain in structure[0] if len(structure) else ():
        letters, residues = [], []
        for residue in chain:
            if not (residue.find_atom("CA", "*") and residue.find_atom("N", "*")):
                others |= {residue.name} - {"HOH", "DOD"}
                continue
            letters.append(parent_letter(residue.name))
            residues.append(
                {atom.name: np.array(atom.pos.tolist()) for atom in residue if not atom.is_hydrogen()}
            )
        if residues:
            chains.append(ProteinChain(chain.name, "".join(letters), residues))
    if not chains:
        raise InputError("no protein to compare", path)
    if others:
        logger.info("%s: not compared, because not protein: %s", path, ", ".join(sorted(others)))
    return chains
