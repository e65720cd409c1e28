"""Predictions of any molecules as PDB, where the format can hold them."""

from collections.abc import Mapping

import gemmi
import numpy as np

from model.chains import MAX_PDB_CHAINS
from model.output import Provenance, pdb_remarks
from model.structure import AllAtomPrediction, EntityKind, Structure

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


def reason_against_pdb(prediction: AllAtomPrediction) -> str | None:
    """Return why the PDB format cannot hold a prediction, in words; None if it can."""
    structure = prediction.structure
    if len(structure.chains) > MAX_PDB_CHAINS:
        return f"{len(structure.chains)} chains; the PDB format can name {MAX_PDB_CHAINS}"
    if long := next((name for name in structure.chain_names if len(name) > 1), None):
        return f"the chain id {long!r} has more than one character"
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
    positions = prediction.positions
    if not (np.isfinite(positions).all() and positions.min() > -999 and positions.max() < 9999):
        return "coordinates that are not finite or do not fit the format's columns"
    return None


def format_all_atom_pdb(prediction: AllAtomPrediction, provenance: Provenance) -> str:
    """Format a prediction as PDB, with CONECT records for ligands and bonds between residues.

    Raises:
        ValueError: the format cannot hold it; see `reason_against_pdb`.
    """
    if (reason := reason_against_pdb(prediction)) is not None:
        raise ValueError(f"{reason}; use the mmCIF file")
    structure = _make_structure(prediction, provenance.name)
    renamed = [f"{new} is {old}" for old, new in pdb_codes(prediction.structure).items() if new != old]
    structure.raw_remarks = pdb_remarks(provenance, "predicted lDDT of each atom, 0 to 100", renamed)
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=True)
    options.conect_records = True
    return str(structure.make_pdb_string(options))


def _make_structure(prediction: AllAtomPrediction, name: str) -> gemmi.Structure:
    tables = prediction.structure
    structure, model = gemmi.Structure(), gemmi.Model(1)
    codes = pdb_codes(tables)
    structure.name = name
    starts = np.searchsorted(tables.atom_residue, np.arange(len(tables.residue_code) + 1))
    for index, chain_row in enumerate(tables.chains):
        chain = gemmi.Chain(chain_row.name)
        for residue in np.flatnonzero(tables.residue_chain == index):
            atoms = slice(*starts[residue : residue + 2])
            chain.add_residue(_make_residue(prediction, int(residue), atoms, codes))
        model.add_chain(chain)
    structure.add_model(model)
    for number, row in enumerate(tables.entities):
        entity = gemmi.Entity(str(number + 1))
        entity.entity_type = _entity_type(row.kind)
        if row.kind.is_polymer:
            entity.polymer_type = _POLYMER_TYPES[row.kind]
            entity.full_sequence = list(row.codes)
        entity.subchains = [chain.name for chain in tables.chains if chain.entity == number]
        structure.entities.append(entity)
    structure.assign_serial_numbers()
    _add_bonds(structure, tables)
    return structure


def _entity_type(kind: EntityKind) -> gemmi.EntityType:
    if kind.is_polymer:
        return gemmi.EntityType.Polymer
    return gemmi.EntityType.Branched if kind == EntityKind.BRANCHED else gemmi.EntityType.NonPolymer


def _make_residue(
    prediction: AllAtomPrediction, index: int, atoms: slice, codes: Mapping[str, str]
) -> gemmi.Residue:
    tables = prediction.structure
    chain = int(tables.residue_chain[index])
    kind = tables.kind(chain)
    residue = gemmi.Residue()
    residue.name = codes[str(tables.residue_code[index])]
    residue.seqid = gemmi.SeqId(int(tables.residue_number[index]), " ")
    residue.subchain = tables.chains[chain].name
    residue.entity_type = _entity_type(kind)
    residue.het_flag = (
        "A" if kind.is_polymer and gemmi.find_tabulated_residue(residue.name).is_standard() else "H"
    )
    if kind.is_polymer:
        residue.label_seq = residue.seqid.num
    for row in range(atoms.start, atoms.stop):
        atom = gemmi.Atom()
        atom.name = str(tables.atom_name[row])
        atom.element = gemmi.Element(str(tables.atom_element[row]))
        atom.charge = int(tables.atom_charge[row])
        atom.pos = gemmi.Position(*(round(float(x), 3) for x in prediction.positions[row]))
        atom.b_iso = round(float(prediction.plddt[row]), 2)
        atom.occ = 1.0
        residue.add_atom(atom)
    return residue


def _add_bonds(structure: gemmi.Structure, tables: Structure) -> None:
    """Add the bonds for CONECT records: those of ligands, and those between residues but in a sequence."""
    serials = [atom.serial for chain in structure[0] for residue in chain for atom in residue]
    ligand = ~tables.chain_is_polymer[tables.atom_chain]
    listed = ligand[tables.bonds[:, :2]].any(axis=1) | tables.is_link
    for first, second, order in tables.bonds[listed].tolist():
        structure.add_conect(serials[first], serials[second], order)
