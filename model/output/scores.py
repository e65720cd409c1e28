"""The scores JSON of a prediction, with ColabFold's keys and rounding."""

import json
from typing import Any

import numpy as np

from model.output.prediction import Prediction


def format_scores(prediction: Prediction, extra: dict[str, Any] | None = None) -> str:
    """Format the scores of a prediction as JSON.

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
