"""The files of a prediction: the structure as PDB and mmCIF, the scores as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gemmi
import numpy as np

from model.chains import MAX_PDB_CHAINS, chain_names, chain_slices
from model.prediction import ComplexScores, Prediction
from msa.base.residues import ATOM37, ELEMENTS, RESTYPE_NAMES, RESTYPES

# columns for text after "REMARK nnn " in a PDB line
REMARK_WIDTH = 68


@dataclass(frozen=True)
class Provenance:
    """The origin of a structure, as recorded in its files.

    Args:
        name: name of the target.
        program: program and version, for example "foldcli 0.1.0".
        network: network and settings, for example "alphafold2_ptm_model_3, seed 0, 3 recycles".
        warning: a warning to print first, or None.
        copied_from: description of the template that the structure is a copy of; None for predictions.
        note: the network's origin, templates and expected accuracy in words, or None.
    """

    name: str
    program: str
    network: str
    warning: str | None = None
    copied_from: str | None = None
    note: str | None = None

    @property
    def title(self) -> str:
        """The title of the structure."""
        if self.copied_from is not None:
            return f"Model of {self.name}, copied from {self.copied_from}"
        return f"{self.warning or ''} Predicted structure of {self.name}".strip()

    @property
    def confidence(self) -> str:
        """The meaning of B-factors."""
        if self.copied_from is not None:
            return "Expected lDDT-CA of copies with this identity and distance to gaps, 0 to 100"
        return "Predicted lDDT-CA, 0 to 100"


def format_pdb(prediction: Prediction, provenance: Provenance) -> str:
    """Format a prediction as PDB.

    Coordinates are in Å with three decimals. Chains are named by `chain_names`; residue numbers are
    residue_index + 1. As in AlphaFold, residues without atoms (unknown residue types) are omitted.

    Raises:
        ValueError: there are more than MAX_PDB_CHAINS chains, or a coordinate is not finite or does not fit
            the format's eight columns.
    """
    if len(_chains(prediction)) > MAX_PDB_CHAINS:
        raise ValueError(f"more than {MAX_PDB_CHAINS} chains do not fit the PDB format; use the mmCIF file")
    present = prediction.atom_positions[prediction.atom_mask > 0.5]
    if present.size and not (np.isfinite(present).all() and present.min() > -999 and present.max() < 9999):
        raise ValueError("coordinates are not finite or too large for the PDB format; use the mmCIF file")
    structure = _make_structure(prediction, provenance.name)
    confidence = provenance.confidence[0].lower() + provenance.confidence[1:]
    structure.raw_remarks = pdb_remarks(provenance, confidence)
    # among several chains, only SEQRES gives the length of a chain whose last residues have no atoms
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=prediction.num_chains > 1)
    return structure.make_pdb_string(options)


def pdb_remarks(provenance: Provenance, confidence: str, more: Sequence[str] = ()) -> list[str]:
    """Return the lines that tell the origin of a structure and the meaning of its B-factors."""
    remarks = [provenance.warning] if provenance.warning else []
    if provenance.copied_from is not None:
        remarks += [f"Copied from {provenance.copied_from}, without a prediction."]
    remarks += [f"{provenance.program}, {provenance.network}", f"B-factor: {confidence}"]
    remarks += [*([provenance.note] if provenance.note else []), *more]
    return [f"REMARK   6 {wrapped}" for text in remarks for wrapped in _wrap(text)]


def format_mmcif(prediction: Prediction, provenance: Provenance) -> str:
    """Format a prediction as mmCIF, with pLDDT in B-factors and in ModelCIF's `_ma_qa_metric` categories."""
    structure = _make_structure(prediction, provenance.name)
    groups = gemmi.MmcifOutputGroups(True)
    groups.cell = groups.symmetry = groups.origx = False
    document = structure.make_mmcif_document(groups)
    block = document.sole_block()
    quote = gemmi.cif.quote
    block.set_pair("_struct.entry_id", quote(provenance.name))
    block.set_pair("_struct.title", quote(provenance.title))
    software = block.init_mmcif_loop("_software.", ["pdbx_ordinal", "name", "classification", "description"])
    description = f"{provenance.network}. {provenance.note}" if provenance.note else provenance.network
    software.add_row(["1", quote(provenance.program), "'model building'", quote(description)])
    _add_plddt(block, prediction, provenance)
    return document.as_string()


def _add_plddt(block: gemmi.cif.Block, prediction: Prediction, provenance: Provenance) -> None:
    quote = gemmi.cif.quote
    is_copy = provenance.copied_from is not None
    note = f"{provenance.confidence}. {provenance.warning}" if provenance.warning else provenance.confidence
    name, metric_type = (quote("expected lDDT-CA"), "other") if is_copy else ("pLDDT", "pLDDT")
    metrics = block.init_mmcif_loop("_ma_qa_metric.", ["id", "name", "type", "mode", "description"])
    metrics.add_row(["1", name, metric_type, "global", quote(note)])
    metrics.add_row(["2", name, metric_type, "local", quote(note)])
    overall = block.init_mmcif_loop(
        "_ma_qa_metric_global.", ["ordinal_id", "model_id", "metric_id", "metric_value"]
    )
    overall.add_row(["1", "1", "1", f"{float(np.mean(prediction.plddt)):.2f}"])
    local = block.init_mmcif_loop(
        "_ma_qa_metric_local.",
        [
            "ordinal_id",
            "model_id",
            "label_asym_id",
            "label_seq_id",
            "label_comp_id",
            "metric_id",
            "metric_value",
        ],
    )
    present: np.ndarray = np.any(prediction.atom_mask > 0.5, axis=1)
    names = _residue_names(prediction)
    for chain, residues in _chains(prediction):
        for i in range(residues.start, residues.stop):
            if present[i] or not is_copy:
                number, plddt = str(i - residues.start + 1), f"{prediction.plddt[i]:.2f}"
                local.add_row([str(i + 1), "1", chain, number, names[i], "2", plddt])


def _residue_names(prediction: Prediction) -> list[str]:
    return [RESTYPE_NAMES[code] for code in prediction.aatype]


def _chains(prediction: Prediction) -> list[tuple[str, slice]]:
    """Return the name and the residues of each chain."""
    if prediction.asym_id is None:
        return [("A", slice(0, len(prediction.aatype)))]
    slices = chain_slices(prediction.asym_id)
    return list(zip(chain_names(len(slices)), slices, strict=True))


def _make_structure(prediction: Prediction, name: str) -> gemmi.Structure:
    names = _residue_names(prediction)
    model = gemmi.Model(1)
    structure = gemmi.Structure()
    structure.name = name
    # copies of a chain are one entity
    entities: dict[tuple[str, ...], gemmi.Entity] = {}
    for chain_name, residues in _chains(prediction):
        chain = gemmi.Chain(chain_name)
        for i in range(residues.start, residues.stop):
            residue = _make_residue(prediction, i, names[i])
            residue.label_seq = i - residues.start + 1
            residue.subchain = chain_name
            if len(residue):
                chain.add_residue(residue)
        model.add_chain(chain)
        sequence = tuple(names[residues])
        entity = entities.setdefault(sequence, _make_entity(str(len(entities) + 1), sequence))
        entity.subchains = [*entity.subchains, chain_name]
    structure.add_model(model)
    for entity in entities.values():
        structure.entities.append(entity)
    structure.assign_serial_numbers()
    return structure


def _make_residue(prediction: Prediction, index: int, name: str) -> gemmi.Residue:
    residue = gemmi.Residue()
    residue.name = name
    residue.seqid = gemmi.SeqId(int(prediction.residue_index[index]) + 1, " ")
    residue.entity_type = gemmi.EntityType.Polymer
    for j in np.flatnonzero(prediction.atom_mask[index] > 0.5):
        atom = gemmi.Atom()
        atom.name = ATOM37[j]
        atom.element = gemmi.Element(ELEMENTS[atom.name])
        # three decimals, so that PDB and mmCIF have the same numbers
        atom.pos = gemmi.Position(*(round(float(x), 3) for x in prediction.atom_positions[index, j]))
        atom.b_iso = round(float(prediction.plddt[index]), 2)
        atom.occ = 1.0
        residue.add_atom(atom)
    return residue


def _make_entity(name: str, sequence: Sequence[str]) -> gemmi.Entity:
    entity = gemmi.Entity(name)
    entity.entity_type = gemmi.EntityType.Polymer
    entity.polymer_type = gemmi.PolymerType.PeptideL
    entity.full_sequence = list(sequence)
    return entity


def _wrap(text: str) -> list[str]:
    """Split text into lines of at most REMARK_WIDTH characters."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > REMARK_WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def format_scores(prediction: Prediction, extra: dict[str, Any] | None = None) -> str:
    """Format the scores of a prediction as JSON, with ColabFold's keys, order and rounding.

    Keys: plddt [N]; for networks with a PAE head max_pae, pae [N, N] (Å) and ptm; for complexes also iptm,
    actifptm, per_chain_ptm by name of the chain ("A"), pairwise_iptm, pairwise_actifptm and pdockq by pairs
    of names ("A-B"), and ipsae and pdockq2 in both directions.

    Args:
        prediction: one network's prediction.
        extra: further keys and values, such as a warning that the network is untrained.
    """
    scores: dict[str, Any] = {"plddt": _round(prediction.plddt)}
    if prediction.pae is not None:
        scores["max_pae"] = float(prediction.pae.max())
        scores["pae"] = _round(prediction.pae)
    if prediction.scores is not None:
        scores |= _scores_of_chains(prediction.scores)
    if prediction.ptm is not None:
        scores["ptm"] = round(float(prediction.ptm), 2)
    if prediction.scores is not None:
        scores["iptm"] = round(prediction.scores.iptm, 2)
        scores |= _scores_of_interfaces(prediction.scores)
    return json.dumps(scores | (extra or {}))


def _scores_of_chains(scores: ComplexScores) -> dict[str, Any]:
    names = chain_names(len(scores.per_chain_ptm))
    return {
        "pairwise_actifptm": _by_pair(scores.pairwise_actifptm, 3),
        "pairwise_iptm": _by_pair(scores.pairwise_iptm, 3),
        "per_chain_ptm": {
            name: round(float(ptm), 3) for name, ptm in zip(names, scores.per_chain_ptm, strict=True)
        },
        "actifptm": round(scores.actifptm, 3),
    }


def _scores_of_interfaces(scores: ComplexScores) -> dict[str, Any]:
    return {
        "ipsae": _by_pair(scores.ipsae, 6, both_directions=True),
        "pdockq": _by_pair(scores.pdockq, 4),
        "pdockq2": _by_pair(scores.pdockq2, 4, both_directions=True),
    }


def _by_pair(values: np.ndarray, digits: int, both_directions: bool = False) -> dict[str, float]:
    """Return scores [C, C] of pairs of chains, keyed by their names, such as "A-B"."""
    names = chain_names(len(values))
    return {
        f"{names[a]}-{names[b]}": round(float(values[a, b]), digits)
        for a in range(len(names))
        for b in range(len(names))
        if a < b or (both_directions and a != b)
    }


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


def _round(values: np.ndarray) -> list[Any]:
    # in float64, so that JSON shows 61.34 and not the digits of the nearest float32
    return np.round(values.astype(np.float64), 2).tolist()
