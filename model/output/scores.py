"""The scores JSON of one prediction, with ColabFold's keys and rounding."""

import json
from typing import Any

import numpy as np

from model.recycling import Prediction


def scores_json(prediction: Prediction, extra: dict[str, Any] | None = None) -> str:
    """ColabFold's keys: plddt [N], and, from networks with a PAE head, pae [N, N] (Å), its maximum and ptm.

    Args:
        prediction: one network's prediction.
        extra: further keys, such as a warning that the network is untrained.
    """
    scores: dict[str, Any] = {"plddt": _rounded(prediction.plddt)}
    if prediction.pae is not None:
        scores["max_pae"] = float(prediction.pae.max())
        scores["pae"] = _rounded(prediction.pae)
    if prediction.ptm is not None:
        scores["ptm"] = round(float(prediction.ptm), 2)
    return json.dumps(scores | (extra or {}))


def _rounded(values: np.ndarray) -> list[Any]:
    # through float64, so that JSON shows 61.34 and not the nearest float32's digits
    return np.round(values.astype(np.float64), 2).tolist()
