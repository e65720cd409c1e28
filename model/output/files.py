"""All files of one predicted structure of molecules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.all_atom.checks import Checks, Restraints, check_structure
from model.all_atom.contacts import contacts_as_dict, format_all_atom_contacts
from model.output.mmcif import format_all_atom_mmcif
from model.output.modelcif import UsedTemplate
from model.output.pdb import format_all_atom_pdb, reason_against_pdb
from model.output.provenance import Provenance
from model.output.scores import format_all_atom_scores, format_confidences, format_summary_confidences
from model.prediction import Prediction


@dataclass(frozen=True)
class AllAtomFiles:
    """The files of one structure.

    Args:
        texts: content by kind: "cif", "pdb" if the format can hold it, "scores", "contacts" if there are
            several chains, "summary_confidences", and "confidences" with the extra "all".
        pdb_missing: why there is no PDB file, in words; None if there is one.
        checks: results of the checks, which are also in the scores.
    """

    texts: Mapping[str, str] = field(repr=False)
    pdb_missing: str | None
    checks: Checks


def format_all_atom_files(
    prediction: Prediction,
    provenance: Provenance,
    restraints: Restraints,
    templates: Sequence[UsedTemplate] = (),
    extra_scores: Mapping[str, Any] | None = None,
) -> AllAtomFiles:
    """Check a structure against the geometry that its molecules should have, and format its files.

    `extra_scores` are further keys of the score file.

    Raises:
        ValueError: a coordinate is not finite.
    """
    checks = check_structure(prediction.structure, prediction.positions, restraints)
    extra = {"checks": checks.as_dict()} | contacts_as_dict(prediction) | dict(extra_scores or {})
    texts = {
        "cif": format_all_atom_mmcif(prediction, provenance, templates),
        "scores": format_all_atom_scores(prediction, extra),
        "summary_confidences": format_summary_confidences(prediction),
    }
    if "all" in prediction.extras:
        texts["confidences"] = format_confidences(prediction)
    pdb_missing = reason_against_pdb(prediction)
    if pdb_missing is None:
        texts["pdb"] = format_all_atom_pdb(prediction, provenance)
    if prediction.num_chains > 1:
        texts["contacts"] = format_all_atom_contacts(prediction)
    return AllAtomFiles(texts, pdb_missing, checks)
