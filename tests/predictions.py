"""Predictions of proteins made from arrays of AlphaFold2's 37 atoms."""

from typing import Any

import numpy as np

from model.prediction import Prediction
from model.structure import protein_structure


def protein_prediction(
    aatype: np.ndarray,
    atom_positions: np.ndarray,
    atom_mask: np.ndarray,
    plddt: np.ndarray,
    residue_index: np.ndarray | None = None,
    asym_id: np.ndarray | None = None,
    **scores: Any,
) -> Prediction:
    """Return a prediction; see `protein_structure` and `Prediction` for the arguments."""
    index = np.arange(len(aatype)) if residue_index is None else residue_index
    is_present = atom_mask > 0.5
    structure = protein_structure(aatype, index, is_present, asym_id)
    return Prediction(structure, atom_positions[is_present], plddt, **scores)
