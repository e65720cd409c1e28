"""Predictions of AlphaFold2's networks, whose atoms are those of the twenty amino acids, as PDB and mmCIF."""

import gemmi

from model.chains import MAX_PDB_CHAINS
from model.output.cif import add
from model.output.modelcif import add_metric_values
from model.output.pdb import fit_pdb, make_structure
from model.output.provenance import Provenance
from model.prediction import Prediction
from msa.base.residues import RESTYPES


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
    if not fit_pdb(prediction.positions):
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
    tables = prediction.structure
    local = [
        (i + 1, 1, tables.chain_names[chain], number, code, 2, f"{prediction.plddt[i]:.2f}")
        for i, (chain, number, code) in enumerate(
            zip(tables.residue_chain, tables.residue_number.tolist(), tables.residue_code, strict=True)
        )
        if tables.token_count[i] or not is_copy
    ]
    add_metric_values(block, [(1, f"{prediction.mean_plddt:.2f}")], local)
    return str(document.as_string())


def _make_structure(prediction: Prediction, provenance: Provenance) -> gemmi.Structure:
    return make_structure(
        prediction.structure, prediction.positions, prediction.b_factors, provenance.name, {}
    )


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
    if prediction.scores is None:
        raise ValueError("a single chain has no contacts between chains")
    contacts, tables = prediction.scores.contacts, prediction.structure
    letters = f"{RESTYPES}X"

    def residue(index: int) -> list[str]:
        chain, number = tables.chain_names[tables.residue_chain[index]], tables.residue_number[index]
        return [chain, str(number), letters[tables.aatype[index]], f"{prediction.plddt[index]:.2f}"]

    lines = ["\t".join(CONTACT_COLUMNS)]
    for first, second, distance, pae in zip(
        contacts.first, contacts.second, contacts.distance, contacts.pae, strict=True
    ):
        numbers = [f"{value:.2f}" for value in (distance, *pae)]
        lines.append("\t".join([*residue(first), *residue(second), *numbers]))
    return "\n".join(lines) + "\n"
