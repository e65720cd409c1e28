"""Predictions of any molecules as PDB, where the format can hold them."""

from collections.abc import Mapping

import gemmi
import numpy as np

from model.chains import MAX_PDB_CHAINS
from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import STANDARD_RESIDUES, EntityKind, Structure

MAX_PDB_ATOMS, MAX_PDB_RESIDUES = 99_999, 9_999
_POLYMER_TYPES = {
    EntityKind.PROTEIN: gemmi.PolymerType.PeptideL,
    EntityKind.RNA: gemmi.PolymerType.Rna,
    EntityKind.DNA: gemmi.PolymerType.Dna,
}


def pdb_codes(structure: Structure) -> dict[str, str]:
    """Return the code of each component in PDB files.

    Ligands that the user defined get those that the Protein Data Bank reserves for this, if theirs are longer
    than the format's three characters: LIG, then 01, 02 and so on.
    """
    reserved = (
        code
        for code in ("LIG", *(f"{number:02d}" for number in range(1, 100)))
        if code not in structure.components
    )
    return {
        code: next(reserved, code) if len(code) > 3 and not component.in_dictionary else code
        for code, component in structure.components.items()
    }


def reason_against_pdb(prediction: Prediction) -> str | None:
    """Return why the PDB format cannot hold a prediction, in words; None if it can."""
    structure = prediction.structure
    if len(structure.chains) > MAX_PDB_CHAINS:
        return f"{len(structure.chains)} chains; the PDB format can name {MAX_PDB_CHAINS}"
    if long := next((name for name in structure.chain_names if len(name) > 1), None):
        return f"the chain id {long!r} has more than one character"
    if other := next((name for name in structure.chain_names if not name.isascii()), None):
        return f"the chain id {other!r} is not ASCII"
    if long := next((code for code in pdb_codes(structure).values() if len(code) > 3), None):
        return f"the component code {long!r} has more than three characters"
    if long := next((name for name in structure.atom_name.tolist() if len(name) > 4), None):
        return f"the atom name {long!r} has more than four characters"
    # a TER record takes a number too
    records = len(structure.atom_name) + len(structure.chains)
    if records > MAX_PDB_ATOMS:
        return f"{len(structure.atom_name):,} atoms; the PDB format can number {MAX_PDB_ATOMS:,}"
    if int(structure.residue_number.max()) > MAX_PDB_RESIDUES:
        return f"a chain of more than {MAX_PDB_RESIDUES:,} residues"
    if not fit_pdb(prediction.positions):
        return "coordinates that are not finite or do not fit the format's columns"
    return None


def fit_pdb(positions: np.ndarray) -> bool:
    """Return whether coordinates, Å, are finite and fit the format's eight columns."""
    return bool(np.isfinite(positions).all() and ((positions > -999) & (positions < 9999)).all())


def format_all_atom_pdb(prediction: Prediction, provenance: Provenance) -> str:
    """Format a prediction as PDB, with CONECT records for ligands and bonds between residues.

    Raises:
        ValueError: the format cannot hold it; see `reason_against_pdb`.
    """
    if (reason := reason_against_pdb(prediction)) is not None:
        raise ValueError(f"{reason}; use the mmCIF file")
    tables, codes = prediction.structure, pdb_codes(prediction.structure)
    structure = make_structure(tables, prediction.positions, prediction.b_factors, provenance.name, codes)
    _add_bonds(structure, tables)
    renamed = [f"{new} is {old}" for old, new in codes.items() if new != old]
    structure.raw_remarks = provenance.pdb_remarks("predicted lDDT of each atom, 0 to 100", renamed)
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=True)
    options.conect_records = True
    return str(structure.make_pdb_string(options))


def make_structure(
    tables: Structure, positions: np.ndarray, plddt: np.ndarray, name: str, codes: Mapping[str, str]
) -> gemmi.Structure:
    """Return gemmi's structure of molecules; residues without atoms are only in its sequences.

    Positions are [A, 3], Å, and pLDDT [A] are the B-factors; `codes` are the names of components where they
    differ from the tables.
    """
    structure, model = gemmi.Structure(), gemmi.Model(1)
    structure.name = name
    starts = np.searchsorted(tables.atom_residue, np.arange(len(tables.residue_code) + 1))
    for index, chain_row in enumerate(tables.chains):
        chain, kind = gemmi.Chain(chain_row.name), tables.kind(index)
        for row in np.flatnonzero(tables.residue_chain == index):
            code = str(tables.residue_code[row])
            residue = _make_residue(codes.get(code, code), int(tables.residue_number[row]), chain.name, kind)
            for atom in range(*starts[row : row + 2]):
                residue.add_atom(_make_atom(tables, atom, positions[atom], plddt[atom]))
            if len(residue):
                chain.add_residue(residue)
        model.add_chain(chain)
    structure.add_model(model)
    for number, entity_row in enumerate(tables.entities):
        entity = gemmi.Entity(str(number + 1))
        entity.entity_type = _entity_type(entity_row.kind)
        if entity_row.kind.is_polymer:
            entity.polymer_type = _POLYMER_TYPES[entity_row.kind]
            entity.full_sequence = list(entity_row.codes)
        entity.subchains = [chain.name for chain in tables.chains if chain.entity == number]
        structure.entities.append(entity)
    structure.assign_serial_numbers()
    return structure


def _entity_type(kind: EntityKind) -> gemmi.EntityType:
    if kind.is_polymer:
        return gemmi.EntityType.Polymer
    return gemmi.EntityType.Branched if kind == EntityKind.BRANCHED else gemmi.EntityType.NonPolymer


def _make_residue(name: str, number: int, chain: str, kind: EntityKind) -> gemmi.Residue:
    residue = gemmi.Residue()
    residue.name = name
    residue.seqid = gemmi.SeqId(number, " ")
    residue.subchain = chain
    residue.entity_type = _entity_type(kind)
    residue.het_flag = "A" if kind.is_polymer and name in STANDARD_RESIDUES else "H"
    if kind.is_polymer:
        residue.label_seq = number
    return residue


def _make_atom(tables: Structure, index: int, position: np.ndarray, plddt: float) -> gemmi.Atom:
    atom = gemmi.Atom()
    atom.name = str(tables.atom_name[index])
    atom.element = gemmi.Element(str(tables.atom_element[index]))
    atom.charge = int(tables.atom_charge[index])
    # three decimals, so that PDB and mmCIF have the same numbers
    atom.pos = gemmi.Position(*(round(float(x), 3) for x in position))
    atom.b_iso = round(float(plddt), 2)
    atom.occ = 1.0
    return atom


def _add_bonds(structure: gemmi.Structure, tables: Structure) -> None:
    """Add the bonds for CONECT records: those of ligands, and those between residues but in a sequence."""
    # as in the file, where the TER records take numbers too
    structure.assign_serial_numbers(numbered_ter=True)
    serials = [atom.serial for chain in structure[0] for residue in chain for atom in residue]
    ligand = ~tables.chain_is_polymer[tables.atom_chain]
    listed = ligand[tables.bonds[:, :2]].any(axis=1) | tables.is_link
    for first, second, order in tables.bonds[listed].tolist():
        structure.add_conect(serials[first], serials[second], order)
