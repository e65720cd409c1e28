"""The data block of a target's page: arrays in compact form, superposed coordinates, and colours.

Plots use the same coordinates and colours. Blue always means confident, and no scale pairs red with green.
"""

import base64
from typing import Any

import numpy as np

from foldcli.report.alignment import Coverage
from foldcli.report.result import PAE_STEP, RankedModel, TargetResult

# AlphaFold's database: lowest pLDDT of each class, name, colour
CONFIDENCE_CLASSES = (
    (90.0, "very high", "#0053d6"),
    (70.0, "confident", "#65cbf3"),
    (50.0, "low", "#ffdb13"),
    (0.0, "very low", "#ff7d45"),
)
# colour scale of the PAE, from 0 Å to MAX_PAE
PAE_COLOURS = ("#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f7fbff")
MAX_PAE = 31.75
# colour scale of the rows of an alignment, from identity 0 to 1; readable on white paper and a dark screen
IDENTITY_COLOURS = ("#f0a43a", "#b9ad8a", "#56a8dc", "#1668b8")


def confidence_class(plddt: float) -> int:
    """Return the index of a pLDDT's class in CONFIDENCE_CLASSES."""
    return next(i for i, (lowest, _, _) in enumerate(CONFIDENCE_CLASSES) if plddt >= lowest or lowest == 0)


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
            "confidence": [list(each) for each in CONFIDENCE_CLASSES],
            "pae": PAE_COLOURS,
            "maxPae": MAX_PAE,
            "identity": IDENTITY_COLOURS,
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
