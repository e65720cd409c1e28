"""Predictions of AlphaFold2's networks, whose atoms are those of the twenty amino acids, as PDB and mmCIF."""

from collections.abc import Sequence
from dataclasses import replace

import gemmi

from model.chains import MAX_PDB_CHAINS
from model.output.mmcif import model_document
from model.output.modelcif import Cell, UsedTemplate, add, add_metric_values
from model.output.pdb import fit_pdb, make_structure
from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import ChemicalComponent
from msa.base.residues import LETTERS, RESTYPE_NAMES, RESTYPES

# name and formula of each residue in the order of RESTYPE_NAMES
_RESIDUES = (
    ("ALANINE", "C3 H7 N O2"), ("ARGININE", "C6 H15 N4 O2 1"), ("ASPARAGINE", "C4 H8 N2 O3"),
    ("ASPARTIC ACID", "C4 H7 N O4"), ("CYSTEINE", "C3 H7 N O2 S"), ("GLUTAMINE", "C5 H10 N2 O3"),
    ("GLUTAMIC ACID", "C5 H9 N O4"), ("GLYCINE", "C2 H5 N O2"), ("HISTIDINE", "C6 H10 N3 O2 1"),
    ("ISOLEUCINE", "C6 H13 N O2"), ("LEUCINE", "C6 H13 N O2"), ("LYSINE", "C6 H15 N2 O2 1"),
    ("METHIONINE", "C5 H11 N O2 S"), ("PHENYLALANINE", "C9 H11 N O2"), ("PROLINE", "C5 H9 N O2"),
    ("SERINE", "C3 H7 N O3"), ("THREONINE", "C4 H9 N O3"), ("TRYPTOPHAN", "C11 H12 N2 O2"),
    ("TYROSINE", "C9 H11 N O3"), ("VALINE", "C5 H11 N O2"), ("UNKNOWN", ""),
)  # fmt: skip


def _component(code: str) -> ChemicalComponent:
    """Return a residue without its atoms, which the Chemical Component Dictionary has."""
    name, formula = _RESIDUES[RESTYPE_NAMES.index(code)]
    kind = "PEPTIDE LINKING" if code == "GLY" else "L-PEPTIDE LINKING"
    return ChemicalComponent(code, kind, name, formula, (), (), (), ())


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
    structure = make_structure(
        prediction.structure, prediction.positions, prediction.b_factors, provenance.name, {}
    )
    confidence = provenance.confidence[0].lower() + provenance.confidence[1:]
    structure.raw_remarks = provenance.pdb_remarks(confidence)
    # among several chains, only SEQRES gives the length of a chain whose last residues have no atoms
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=prediction.num_chains > 1)
    return str(structure.make_pdb_string(options))


def format_mmcif(
    prediction: Prediction, provenance: Provenance, templates: Sequence[UsedTemplate] = ()
) -> str:
    """Format a prediction as mmCIF with the categories of ModelCIF, and pLDDT in B-factors.

    Raises:
        ValueError: a coordinate is not finite.
    """
    tables = prediction.structure
    entities = tuple(
        replace(
            entity,
            sequence="".join(LETTERS.get(code, "X") for code in entity.codes),
            description=f"protein {number}",
        )
        for number, entity in enumerate(tables.entities, 1)
    )
    components = {code: _component(code) for code in sorted(set(tables.residue_code))}
    described = replace(prediction, structure=replace(tables, entities=entities, components=components))
    document = model_document(described, provenance, templates)
    _add_scores(document.sole_block(), prediction, provenance)
    return str(document.as_string())


def _add_scores(block: gemmi.cif.Block, prediction: Prediction, provenance: Provenance) -> None:
    """Add the scores of the model, and pLDDT of its residues."""
    is_copy = provenance.copied_from is not None
    note = provenance.with_warning(provenance.confidence)
    name, kind = ("expected lDDT-CA", "other") if is_copy else ("pLDDT", "pLDDT")
    other = name if is_copy else None
    metrics: list[tuple[Cell, ...]] = [
        (number, name, kind, mode, note, other) for number, mode in ((1, "global"), (2, "local"))
    ]
    overall: list[tuple[Cell, ...]] = [(1, f"{prediction.mean_plddt:.2f}")]
    for number, name, value in ((3, "pTM", prediction.ptm), (7, "ipTM", prediction.iptm)):
        if value is not None:
            metrics.append((number, name, name, "global", "Predicted TM-score", None))
            overall.append((number, f"{float(value):.4f}"))
    add(block, "_ma_qa_metric", "id name type mode description type_other_details", metrics)
    tables = prediction.structure
    local = [
        (i + 1, 1, tables.chain_names[chain], number, code, 2, f"{prediction.plddt[i]:.2f}")
        for i, (chain, number, code) in enumerate(
            zip(tables.residue_chain, tables.residue_number.tolist(), tables.residue_code, strict=True)
        )
        if tables.token_count[i] or not is_copy
    ]
    add_metric_values(block, overall, local)


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
