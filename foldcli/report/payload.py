"""The numbers of one target as the page's scripts read them: arrays as base64 of a few bits each."""

import base64
from typing import TYPE_CHECKING, Any

from foldcli.report import palettes
from foldcli.report.result import PAE_STEP, RankedModel, Result

if TYPE_CHECKING:
    import numpy as np

    from foldcli.report.alignment import Coverage


def packed(array: "np.ndarray", dtype: str) -> str:
    """An array's bytes as base64, little-endian, row after row."""
    import numpy as np

    return base64.b64encode(np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def payload(result: Result, coverage: "Coverage | None") -> dict[str, Any]:
    """What the scripts of a target's page are told.

    Coordinates are in steps of `step` Å, turned so that the best model lies with its longest axis across, the
    other models laid upon it; pLDDT in steps of 0.01; PAE in steps of PAE_STEP.
    """
    import numpy as np

    laid = lay_out([model.ca for model in result.models])
    present = np.flatnonzero(np.isfinite(laid[0]).all(1))
    highest = max(float(np.nanmax(np.abs(ca[present]), initial=0.0)) for ca in laid)
    step = max(highest / 32767, 0.001)
    return {
        "name": result.name,
        "sequence": result.sequence,
        "present": packed(present, "u2") if len(present) < len(result.sequence) else None,
        "step": step,
        "models": [_model(model, ca[present] / step) for model, ca in zip(result.models, laid, strict=True)],
        "paeStep": PAE_STEP,
        "coverage": None if coverage is None else _coverage(coverage),
        "palettes": {
            "confidence": [list(each) for each in palettes.CONFIDENCE],
            "pae": palettes.PAE,
            "paeHighest": palettes.PAE_HIGHEST,
            "identity": palettes.IDENTITY,
        },
    }


def _model(model: RankedModel, ca: "np.ndarray") -> dict[str, Any]:
    import numpy as np

    pae = model.pae
    return {
        "rank": model.rank,
        "tag": model.tag,
        "mean": round(float(model.plddt.mean()), 1),
        "ptm": model.ptm,
        "ca": packed(np.rint(np.nan_to_num(ca)), "i2"),
        "plddt": packed(np.rint(np.clip(model.plddt, 0, 100) * 100), "u2"),
        "pae": None
        if pae is None
        else {
            "side": len(pae.cells),
            "block": pae.block,
            "mean": round(pae.mean, 2),
            "cells": packed(pae.cells, "u1"),
        },
    }


def _coverage(coverage: "Coverage") -> dict[str, Any]:
    import numpy as np

    rows, columns = coverage.occupancy.shape
    return {
        "depth": coverage.depth,
        "covered": packed(coverage.covered, "u4"),
        "rows": rows,
        "columns": columns,
        "starts": packed(coverage.rows, "u4"),
        "identity": packed(np.rint(coverage.identity * 255), "u1"),
        "occupancy": packed(np.rint(coverage.occupancy * 255), "u1"),
    }


def lay_out(models: "list[np.ndarray]") -> "list[np.ndarray]":
    """Coordinates [N, 3] centred, and turned so that the first model's longest axis lies across.

    Its shortest points to the eye. The others are superposed on it over the residues that both have (Kabsch,
    Acta Cryst. A 32, 922, 1976).
    """
    import numpy as np

    there = np.isfinite(models[0]).all(1)
    if not there.any():
        return models
    first = models[0] - models[0][there].mean(0)
    _, _, axes = np.linalg.svd(first[there], full_matrices=False)
    if len(axes) == 3:
        axes[2] *= np.sign(np.linalg.det(axes)) or 1.0  # a rotation, never a mirror image
        first = first @ axes.T
    laid = [first]
    for model in models[1:]:
        both = there & np.isfinite(model).all(1)
        centre = model[both].mean(0)
        moved, target = model - centre, first[both].mean(0)
        u, _, vt = np.linalg.svd(moved[both].T @ (first[both] - target))
        turn = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) or 1.0])
        laid.append(moved @ u @ turn @ vt + target)
    return laid
