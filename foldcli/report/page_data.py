"""The data block of a target's page: arrays in compact form, and superposed coordinates."""

import base64
from typing import Any

import numpy as np

from foldcli.report import palettes
from foldcli.report.alignment import Coverage
from foldcli.report.result import PAE_STEP, RankedModel, TargetResult


def pack_array(array: np.ndarray, dtype: str) -> str:
    """Return an array's bytes as base64, little-endian, in row-major order."""
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def page_data(result: TargetResult, coverage: Coverage | None) -> dict[str, Any]:
    """Return the data that the page's scripts read.

    Coordinates are integers in units of `step` Å, oriented by `superpose`. pLDDT is in units of 0.01, PAE in
    units of PAE_STEP.
    """
    superposed = superpose([model.ca for model in result.models])
    present = np.flatnonzero(np.isfinite(superposed[0]).all(1))
    extent = max(float(np.nanmax(np.abs(ca[present]), initial=0.0)) for ca in superposed)
    step = max(extent / 32767, 0.001)
    return {
        "name": result.name,
        "sequence": result.sequence,
        "present": pack_array(present, "u2") if len(present) < len(result.sequence) else None,
        "step": step,
        "models": [
            _model_data(model, ca[present] / step)
            for model, ca in zip(result.models, superposed, strict=True)
        ],
        "paeStep": PAE_STEP,
        "coverage": None if coverage is None else _coverage_data(coverage),
        "palettes": {
            "confidence": [list(each) for each in palettes.CONFIDENCE_CLASSES],
            "pae": palettes.PAE_COLOURS,
            "maxPae": palettes.MAX_PAE,
            "identity": palettes.IDENTITY_COLOURS,
        },
    }


def _model_data(model: RankedModel, ca: np.ndarray) -> dict[str, Any]:
    pae = None
    if model.pae is not None:
        pae = {
            "side": len(model.pae.cells),
            "block": model.pae.block,
            "mean": round(model.pae.mean, 2),
            "cells": pack_array(model.pae.cells, "u1"),
        }
    return {
        "rank": model.rank,
        "tag": model.tag,
        "mean": round(float(model.plddt.mean()), 1),
        "ptm": model.ptm,
        "ca": pack_array(np.rint(np.nan_to_num(ca)), "i2"),
        "plddt": pack_array(np.rint(np.clip(model.plddt, 0, 100) * 100), "u2"),
        "pae": pae,
    }


def _coverage_data(coverage: Coverage) -> dict[str, Any]:
    rows, columns = coverage.occupancy.shape
    return {
        "depth": coverage.depth,
        "covered": pack_array(coverage.covered, "u4"),
        "rows": rows,
        "columns": columns,
        "starts": pack_array(coverage.row_starts, "u4"),
        "identity": pack_array(np.rint(coverage.identity * 255), "u1"),
        "occupancy": pack_array(np.rint(coverage.occupancy * 255), "u1"),
    }


def superpose(models: list[np.ndarray]) -> list[np.ndarray]:
    """Centre and orient the first model, and superpose the others on it.

    The first model's longest axis becomes x, its shortest z, which points at the viewer. The others are
    superposed over the residues that both have (Kabsch, Acta Cryst. A 32, 922, 1976). Never mirrors a model.

    Args:
        models: coordinates of each model, float64 [N, 3]; NaN for missing residues.
    """
    present = np.isfinite(models[0]).all(1)
    if not present.any():
        return models
    first = models[0] - models[0][present].mean(0)
    _, _, axes = np.linalg.svd(first[present], full_matrices=False)
    if len(axes) == 3:
        axes[2] *= np.sign(np.linalg.det(axes)) or 1.0  # a rotation, never a reflection
        first = first @ axes.T
    superposed = [first]
    for model in models[1:]:
        shared = present & np.isfinite(model).all(1)
        centred, target = model - model[shared].mean(0), first[shared].mean(0)
        u, _, vt = np.linalg.svd(centred[shared].T @ (first[shared] - target))
        handedness = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) or 1.0])
        superposed.append(centred @ u @ handedness @ vt + target)
    return superposed
