"""Finished predictions of foldcli and ColabFold, read from their folders."""

import importlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gemmi
import numpy as np

from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.summary import COLUMNS, finished_models
from foldcli.report.data.result import finished_targets
from foldcli.report.notebook import notebook_view
from msa.base.errors import InputError, MissingError
from msa.base.json_files import read_json


@dataclass(frozen=True, eq=False)
class Prediction:
    """A predicted structure with its confidence, read from its files when they are first used.

    Args:
        target: name of the target.
        rank: 1 is the best model of the target.
        model: network and seed, such as alphafold2_ptm_model_3_seed_000.
        path: the structure, relaxed if there is such a file; PDB, or mmCIF if the PDB format cannot hold it.
        scores_path: the JSON file of the scores.
    """

    target: str
    rank: int
    model: str
    path: Path
    scores_path: Path
    # a temporary folder, which lasts as long as its predictions
    _folder: Any = field(default=None, repr=False)

    @cached_property
    def scores(self) -> dict[str, Any]:
        """All scores, with ColabFold's keys; see docs/outputs.md.

        Raises:
            InputError: the file is damaged.
        """
        try:
            scores: dict[str, Any] = read_json(self.scores_path, dict[str, Any])
            np.asarray(scores["plddt"], np.float64)
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"not the scores of a model ({error})", self.scores_path) from error
        return scores

    @cached_property
    def plddt(self) -> np.ndarray:
        """The pLDDT of each residue, float64 [N], 0 to 100; of all-atom networks of each token."""
        return np.asarray(self.scores["plddt"], np.float64)

    @cached_property
    def pae(self) -> np.ndarray | None:
        """The predicted aligned error, float32 [N, N], Å; None without a PAE head."""
        pae = self.scores.get("pae")
        return None if pae is None else np.asarray(pae, np.float32)

    @property
    def ptm(self) -> float | None:
        """The pTM, 0 to 1; None without a PAE head."""
        return self.scores.get("ptm")

    @property
    def iptm(self) -> float | None:
        """The ipTM, 0 to 1; None for a single chain."""
        return self.scores.get("iptm")

    @cached_property
    def structure(self) -> gemmi.Structure:
        """The structure.

        Raises:
            InputError: the file is damaged.
        """
        try:
            structure = gemmi.read_structure(str(self.path))
        except (RuntimeError, ValueError) as error:
            raise InputError(f"not a structure ({error})", self.path) from error
        structure.setup_entities()
        return structure

    @cached_property
    def coordinates(self) -> np.ndarray:
        """The positions of all atoms in the order of the structure, float64 [A, 3], Å."""
        return np.array([site.atom.pos.tolist() for site in self.structure[0].all()]).reshape(-1, 3)

    def to_biotite(self) -> Any:
        """Return the structure as an `AtomArray` of biotite, with pLDDT as `b_factor`.

        Raises:
            MissingError: biotite is not installed.
        """
        if find_spec("biotite") is None:
            raise MissingError("biotite is not installed", "pip install 'foldcli[allatom]'")
        # biotite is optional
        if self.path.suffix == ".cif":
            pdbx = importlib.import_module("biotite.structure.io.pdbx")
            return pdbx.get_structure(pdbx.CIFFile.read(self.path), model=1, extra_fields=["b_factor"])
        pdb = importlib.import_module("biotite.structure.io.pdb")
        return pdb.PDBFile.read(self.path).get_structure(model=1, extra_fields=["b_factor"])

    def _repr_html_(self) -> str:
        scores = [("pLDDT", self.plddt.mean(), ".1f"), ("pTM", self.ptm, ".2f"), ("ipTM", self.iptm, ".2f")]
        values = [f"{name} {value:{spec}}" for name, value, spec in scores if value is not None]
        caption = ", ".join([f"{self.target}, rank {self.rank} ({self.model})", *values])
        kind = "mmcif" if self.path.suffix == ".cif" else "pdb"
        return notebook_view(self.path.read_text(), kind, caption, bool(self.scores.get("untrained")))


def predictions_of(files: TargetFiles, folder: Any = None) -> list[Prediction]:
    """Return the models of a finished target, best first.

    Raises:
        InputError: a model has no structure.
    """
    predictions = []
    for rank, tag, scores in files.score_files():
        paths = files.existing_structures(rank, tag, scores)
        if not paths:
            raise InputError("its structure is missing", scores)
        predictions.append(Prediction(files.name, rank, tag, paths[0], scores, folder))
    return predictions


def load(folder: str | os.PathLike[str]) -> Any:
    """Read the finished targets in a folder of results of foldcli or ColabFold, in any layout.

    Returns:
        A table with a row for each model, by target and rank: a pandas DataFrame if pandas is installed, else
        a list of dictionaries. Its columns are those of summary.tsv, with whole paths, and `prediction`.

    Raises:
        InputError: there are no finished targets, or a file is missing or damaged.
        OSError: the folder cannot be read.
    """
    rows = [row for files in finished_targets(Path(folder)) for row in _rows(files)]
    if not rows:
        raise InputError("no finished target here: no NAME_scores_rank_*.json", folder)
    # pandas is optional, and slow to import
    return rows if find_spec("pandas") is None else importlib.import_module("pandas").DataFrame(rows)


def _rows(files: TargetFiles) -> list[dict[str, Any]]:
    recorded = {(row["rank"], row["model"]): row for row in finished_models(files)}
    rows = []
    for prediction in predictions_of(files):
        row = recorded.get((prediction.rank, prediction.model)) or _scored(prediction)
        paths = {name: files.out / row[name] for name in ("structure", "relaxed", "scores") if row[name]}
        rows.append(row | paths | {"prediction": prediction})
    return rows


def _scored(prediction: Prediction) -> dict[str, Any]:
    """Return the row of a model without a record, such as ColabFold's."""
    is_relaxed = "_relaxed_rank_" in prediction.path.name
    return dict.fromkeys(COLUMNS) | {
        "target": prediction.target,
        "rank": prediction.rank,
        "model": prediction.model,
        "plddt": round(float(prediction.plddt.mean()), 2),
        "ptm": prediction.ptm,
        "iptm": prediction.iptm,
        "residues": len(prediction.plddt),
        "structure": prediction.path,
        "relaxed": prediction.path if is_relaxed else None,
        "scores": prediction.scores_path,
    }
