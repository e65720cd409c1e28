"""Predictions of AlphaFold2's networks, whose atoms are those of the twenty amino acids, as PDB and mmCIF."""

from collections.abc import Sequence
from typing import Any

import gemmi
import numpy as np

from model.chains import MAX_PDB_CHAINS, chain_names, chain_slices
from model.confidence.flags import structure_flags
from model.output.cif import Cell, add
from model.output.mmcif import model_document
from model.output.modelcif import UsedTemplate, add_metric_values, format_pairwise_scores
from model.output.pdb import fit_pdb, make_structure
from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import Chain, ChemicalComponent, Entity, EntityKind, Structure
from msa.base.residues import ATOM37, ELEMENTS, RESTYPE_NAMES, RESTYPES


def residue_structure(prediction: Prediction) -> Structure:
    """Return the tables of a prediction, without bonds and the atoms of components.

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
        entities=tuple(
            Entity(EntityKind.PROTEIN, sequence, _letters(sequence), f"protein {number}")
            for number, sequence in enumerate(entities, 1)
        ),
        chains=tuple(chains),
        components={code: _component(code) for code in sorted(set(codes))},
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


def _letters(codes: Sequence[str]) -> str:
    return "".join(f"{RESTYPES}X"[RESTYPE_NAMES.index(code)] for code in codes)


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


def format_mmcif(
    prediction: Prediction, provenance: Provenance, templates: Sequence[UsedTemplate] = ()
) -> str:
    """Format a prediction as mmCIF with the categories of ModelCIF, and pLDDT in B-factors.

    Args:
        prediction: the prediction.
        provenance: its origin.
        templates: the templates of the network's input.

    Raises:
        ValueError: a coordinate is not finite.
    """
    structure = residue_structure(prediction)
    positions = prediction.atom_positions[prediction.atom_mask > 0.5]
    plddt = prediction.plddt[structure.atom_residue]
    document = model_document(structure, positions, plddt, provenance, templates)
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
    scores = prediction.scores
    for number, name, value in (
        (3, "pTM", prediction.ptm), (7, "ipTM", None if scores is None else scores.iptm),
    ):  # fmt: skip
        if value is not None:
            metrics.append((number, name, name, "global", "Predicted TM-score", None))
            overall.append((number, f"{float(value):.4f}"))
    add(block, "_ma_qa_metric", "id name type mode description type_other_details", metrics)
    present = np.any(prediction.atom_mask > 0.5, axis=1)
    local = [
        (i + 1, 1, chain, i - residues.start + 1, RESTYPE_NAMES[code], 2, f"{prediction.plddt[i]:.2f}")
        for chain, residues in _chains(prediction)
        for i, code in enumerate(prediction.aatype[residues], residues.start)
        if present[i] or not is_copy
    ]
    add_metric_values(block, overall, local)


def format_pairwise_errors(prediction: Prediction, provenance: Provenance) -> str:
    """Format the PAE of all pairs of residues as ModelCIF; see `modelcif.format_pairwise_scores`.

    Raises:
        ValueError: the network predicts no PAE.
    """
    if prediction.pae is None:
        raise ValueError("a network without a PAE head")
    return format_pairwise_scores(residue_structure(prediction), prediction.pae, None, provenance)


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
