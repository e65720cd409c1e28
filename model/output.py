"""The files of a prediction: the structure as PDB and mmCIF, the scores as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gemmi
import numpy as np

from model import residue_constants
from model.prediction import Prediction

CHAIN = "A"
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
        copied_from: the template of a structure that was copied, not predicted, in words; else None.
    """

    name: str
    program: str
    network: str
    warning: str | None = None
    copied_from: str | None = None

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

    Coordinates are in Å with three decimals. The chain is A; residue numbers are residue_index + 1. As in
    AlphaFold, residues without atoms (unknown residue types) are omitted.

    Raises:
        ValueError: a coordinate is not finite or does not fit the format's eight columns.
    """
    present = prediction.atom_positions[prediction.atom_mask > 0.5]
    if present.size and not (np.isfinite(present).all() and present.min() > -999 and present.max() < 9999):
        raise ValueError("coordinates are not finite or too large for the PDB format; use the mmCIF file")
    structure = _make_structure(prediction, provenance.name)
    lines = [provenance.warning] if provenance.warning else []
    if provenance.copied_from is not None:
        lines += [f"Copied from {provenance.copied_from}, without a prediction."]
    confidence = provenance.confidence[0].lower() + provenance.confidence[1:]
    lines += [f"{provenance.program}, {provenance.network}", f"B-factor: {confidence}"]
    structure.raw_remarks = [f"REMARK   6 {wrapped}" for line in lines for wrapped in _wrap(line)]
    options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=False)
    return structure.make_pdb_string(options)


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
    software.add_row(["1", quote(provenance.program), "'model building'", quote(provenance.network)])
    _add_plddt(block, prediction, provenance)
    return document.as_string()


def _add_plddt(block: gemmi.cif.Block, prediction: Prediction, provenance: Provenance) -> None:
    quote = gemmi.cif.quote
    copied = provenance.copied_from is not None
    note = f"{provenance.confidence}. {provenance.warning}" if provenance.warning else provenance.confidence
    name, kind = (quote("expected lDDT-CA"), "other") if copied else ("pLDDT", "pLDDT")
    metrics = block.init_mmcif_loop("_ma_qa_metric.", ["id", "name", "type", "mode", "description"])
    metrics.add_row(["1", name, kind, "global", quote(note)])
    metrics.add_row(["2", name, kind, "local", quote(note)])
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
    for i, (name, plddt) in enumerate(zip(_residue_names(prediction), prediction.plddt, strict=True)):
        if present[i] or not copied:
            local.add_row([str(i + 1), "1", CHAIN, str(i + 1), name, "2", f"{plddt:.2f}"])


def _residue_names(prediction: Prediction) -> list[str]:
    return [residue_constants.RESTYPE_NAMES[code] for code in prediction.aatype]


def _make_structure(prediction: Prediction, name: str) -> gemmi.Structure:
    names = _residue_names(prediction)
    chain = gemmi.Chain(CHAIN)
    for i, residue_name in enumerate(names):
        residue = gemmi.Residue()
        residue.name = residue_name
        residue.seqid = gemmi.SeqId(int(prediction.residue_index[i]) + 1, " ")
        residue.label_seq = i + 1
        residue.subchain = CHAIN
        residue.entity_type = gemmi.EntityType.Polymer
        for j in np.flatnonzero(prediction.atom_mask[i] > 0.5):
            atom = gemmi.Atom()
            atom.name = residue_constants.ATOM_TYPES[j]
            atom.element = gemmi.Element(atom.name[0])
            # three decimals, so that PDB and mmCIF have the same numbers
            atom.pos = gemmi.Position(*(round(float(x), 3) for x in prediction.atom_positions[i, j]))
            atom.b_iso = round(float(prediction.plddt[i]), 2)
            atom.occ = 1.0
            residue.add_atom(atom)
        if len(residue):
            chain.add_residue(residue)
    model = gemmi.Model(1)
    model.add_chain(chain)
    structure = gemmi.Structure()
    structure.name = name
    structure.add_model(model)
    structure.entities.append(_make_entity(names))
    structure.assign_serial_numbers()
    return structure


def _make_entity(names: Sequence[str]) -> gemmi.Entity:
    entity = gemmi.Entity("1")
    entity.entity_type = gemmi.EntityType.Polymer
    entity.polymer_type = gemmi.PolymerType.PeptideL
    entity.full_sequence = list(names)
    entity.subchains = [CHAIN]
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
    """Format the scores of a prediction as JSON, with ColabFold's keys and rounding.

    Keys: plddt [N]; and for networks with a PAE head max_pae, pae [N, N] (Å) and ptm.

    Args:
        prediction: one network's prediction.
        extra: further keys and values, such as a warning that the network is untrained.
    """
    scores: dict[str, Any] = {"plddt": _round(prediction.plddt)}
    if prediction.pae is not None:
        scores["max_pae"] = float(prediction.pae.max())
        scores["pae"] = _round(prediction.pae)
    if prediction.ptm is not None:
        scores["ptm"] = round(float(prediction.ptm), 2)
    return json.dumps(scores | (extra or {}))


def _round(values: np.ndarray) -> list[Any]:
    # in float64, so that JSON shows 61.34 and not the digits of the nearest float32
    return np.round(values.astype(np.float64), 2).tolist()
