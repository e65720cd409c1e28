"""Predictions of proteins made from arrays of AlphaFold2's 37 atoms."""

from typing import Any

import numpy as np

from model import residue_constants
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


def complex_prediction(seed: int) -> Prediction:
    """Return a dense random complex of two to four chains, with numbers as its files round them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 60, rng.integers(2, 5))
    count, total = len(lengths), int(lengths.sum())
    aatype = rng.integers(0, 20, total)
    mask = residue_constants.atom37_mask()[aatype].astype(np.float32)
    asym_id = np.repeat(np.arange(1, count + 1), lengths)
    far = np.abs(np.subtract.outer(asym_id, asym_id)) * rng.uniform(0, 8)
    pae = np.minimum(rng.uniform(0.5, 14, (total, total)) + far, 31.7).round(2).astype(np.float32)
    pae[pae == 12] = 12.01  # which the script counts, and the authors of LIS do not
    return protein_prediction(
        aatype,
        rng.uniform(0, 40, (total, 37, 3)).round(3).astype(np.float32),
        mask,
        plddt=rng.uniform(30, 98, total).round(2),
        residue_index=np.concatenate([np.arange(length) for length in lengths]),
        asym_id=asym_id,
        ptm=0.5,
        pae=pae,
    )
