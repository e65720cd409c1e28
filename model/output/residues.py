"""Predictions of AlphaFold2's networks, whose atoms are those of the twenty amino acids, as PDB and mmCIF."""

from typing import Any

import gemmi
import numpy as np

from model.chains import MAX_PDB_CHAINS, chain_names, chain_slices
from model.confidence.flags import structure_flags
from model.output.cif import add
from model.output.modelcif import add_metric_values
from model.output.pdb import fit_pdb, make_structure
from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import Chain, Entity, EntityKind, Structure
from msa.base.residues import ATOM37, ELEMENTS, RESTYPE_NAMES, RESTYPES


def residue_structure(prediction: Prediction) -> Structure:
    """Return the tables of a prediction, without bonds and components.

    Copies of a chain are one entity. As in AlphaFold, unknown residues have no atoms.
    """
    codes = np.array([RESTYPE_NAMES[code] for code in prediction.aatype], object)
    entities: dict[tuple[str, ...], int] = {}
    chains = [
        Chain(name, entities.setdefault(tuple(codes[residues]), len(entities)))
        for name, residues in _chains(prediction)
    ]
    lengths = [residues.stop - residues.start for _, residues in _chains(prediction)]
    residue, atom = np.nonzero(prediction.atom_mask > 0.5)
    names = np.array(ATOM37, object)[atom]
    return Structure(
        entities=tuple(Entity(EntityKind.PROTEIN, sequence, "", "") for sequence in entities),
        chains=tuple(chains),
        components={},
        residue_chain=np.repeat(np.arange(len(chains)), lengths),
        residue_number=prediction.residue_index + 1,
        residue_code=codes,
        atom_residue=residue,
        atom_name=names,
        atom_element=np.array([ELEMENTS[name] for name in names], object),
        atom_charge=np.zeros(len(names), np.int64),
        bonds=np.zeros((0, 3), np.int64),
        token_start=np.searchsorted(residue, np.arange(len(codes))),
        token_count=np.bincount(residue, minlength=len(codes)),
        token_is_atom=np.zeros(len(codes), bool),
    )


def residue_flags(prediction: Prediction) -> dict[str, Any]:
    """Return the flags of a prediction; see `model.confidence.flags.structure_flags`."""
    return structure_flags(
        residue_structure(prediction), prediction.atom_positions[prediction.atom_mask > 0.5]
    )


def format_pdb(prediction: Prediction, provenance: Provenance) -> str:
    """Format a prediction as PDB.

    Coordinates are in Å with three decimals. Chains are named by `chain_names`; residue numbers are
    residue_index + 1.

    Raises:
        ValueError: there are more than MAX_PDB_CHAINS chains, or a coordinate is not finite or does not fit
            the format's eight columns.
    """
    if prediction.num_chains > MAX_PDB_CHAINS:
        raise ValueError(f"more than {MAX_PDB_CHAINS} chains do not fit the PDB format; use the mmCIF file")
    if not fit_pdb(prediction.atom_positions[prediction.atom_mask > 0.5]):
        raise ValueError("coordinates are not finite or too large for the PDB format; use the mmCIF file")
    structure = _make_structure(prediction, provenance)
    confidence = provenance.confidence[0].lower() + provenance.confidence[1:]
    structure.raw_remarks = provenance.pdb_remarks(confidence)
    # among several chains, only SEQRES gives the length of a chain whose last residues have no atoms
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=prediction.num_chains > 1)
    return str(structure.make_pdb_string(options))


def format_mmcif(prediction: Prediction, provenance: Provenance) -> str:
    """Format a prediction as mmCIF, with pLDDT in B-factors and in ModelCIF's `_ma_qa_metric` categories."""
    groups = gemmi.MmcifOutputGroups(True)
    groups.cell = groups.symmetry = groups.origx = False
    document = _make_structure(prediction, provenance).make_mmcif_document(groups)
    block = document.sole_block()
    block.set_pair("_struct.entry_id", gemmi.cif.quote(provenance.name))
    block.set_pair("_struct.title", gemmi.cif.quote(provenance.title))
    software = (1, provenance.program, "model building", provenance.description)
    add(block, "_software", "pdbx_ordinal name classification description", [software])
    is_copy = provenance.copied_from is not None
    note = provenance.with_warning(provenance.confidence)
    name, kind = ("expected lDDT-CA", "other") if is_copy else ("pLDDT", "pLDDT")
    metrics = [(number, name, kind, mode, note) for number, mode in ((1, "global"), (2, "local"))]
    add(block, "_ma_qa_metric", "id name type mode description", metrics)
    present = np.any(prediction.atom_mask > 0.5, axis=1)
    local = [
        (i + 1, 1, chain, i - residues.start + 1, RESTYPE_NAMES[code], 2, f"{prediction.plddt[i]:.2f}")
        for chain, residues in _chains(prediction)
        for i, code in enumerate(prediction.aatype[residues], residues.start)
        if present[i] or not is_copy
    ]
    add_metric_values(block, [(1, f"{prediction.mean_plddt:.2f}")], local)
    return str(document.as_string())


def _make_structure(prediction: Prediction, provenance: Provenance) -> gemmi.Structure:
    tables, is_present = residue_structure(prediction), prediction.atom_mask > 0.5
    plddt = prediction.plddt[tables.atom_residue]
    return make_structure(tables, prediction.atom_positions[is_present], plddt, provenance.name, {})


def _chains(prediction: Prediction) -> list[tuple[str, slice]]:
    """Return the name and the residues of each chain."""
    if prediction.asym_id is None:
        return [("A", slice(0, len(prediction.aatype)))]
    slices = chain_slices(prediction.asym_id)
    return list(zip(chain_names(len(slices)), slices, strict=True))


CONTACT_COLUMNS = (
    "chain_1", "residue_1", "name_1", "plddt_1", "chain_2", "residue_2", "name_2", "plddt_2", "distance",
    "pae_1_2", "pae_2_1",
)  # fmt: skip


def format_contacts(prediction: Prediction) -> str:
    """Format the contacts between the chains of a complex as a table with the columns CONTACT_COLUMNS.

    Residue numbers are those of the structure, names one-letter codes, distances and PAE in Å: pae_1_2 is the
    error of residue 2 when aligned on residue 1.

    Raises:
        ValueError: the prediction has no scores of a complex.
    """
    if prediction.scores is None or prediction.asym_id is None:
        raise ValueError("a single chain has no contacts between chains")
    contacts = prediction.scores.contacts
    chain_of = np.repeat(
        [name for name, _ in _chains(prediction)],
        [residues.stop - residues.start for _, residues in _chains(prediction)],
    )
    letters = f"{RESTYPES}X"

    def residue(index: int) -> list[str]:
        number, letter = prediction.residue_index[index] + 1, letters[prediction.aatype[index]]
        return [str(chain_of[index]), str(number), letter, f"{prediction.plddt[index]:.2f}"]

    lines = ["\t".join(CONTACT_COLUMNS)]
    for first, second, distance, pae in zip(
        contacts.first, contacts.second, contacts.distance, contacts.pae, strict=True
    ):
        numbers = [f"{value:.2f}" for value in (distance, *pae)]
        lines.append("\t".join([*residue(first), *residue(second), *numbers]))
    return "\n".join(lines) + "\n"
