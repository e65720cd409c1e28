"""The data block of a target's page: arrays in compact form, superposed atoms, and colours.

Plots use the same coordinates and colours. Blue always means confident, and no scale pairs red with green.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldcli.report.data.alignment import Coverage
from foldcli.report.data.model_atoms import ModelAtoms
from foldcli.report.data.result import PAE_STEP, PaeMap, RankedModel, TargetResult
from foldcli.report.data.secondary_structure import assign_secondary_structure
from model.comparison.superposition import superpose

# maximum number of atoms of all models of a page; models beyond it have their backbone only
MAX_ATOMS = 200_000

# the classes of AlphaFold's database: lowest pLDDT, name, colour
CONFIDENCE_CLASSES = (
    (90.0, "very high", "#0053d6"),
    (70.0, "confident", "#65cbf3"),
    (50.0, "low", "#ffdb13"),
    (0.0, "very low", "#ff7d45"),
)
CLASS_RANGES = ("over 90", "70 to 90", "50 to 70", "under 50")
# colour scale of the PAE, from 0 Å to MAX_PAE
PAE_COLOURS = ("#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f7fbff")
MAX_PAE = 31.75
# colour scale of the rows of an alignment, from identity 0 to 1; readable on white paper and a dark screen
IDENTITY_COLOURS = ("#f0a43a", "#b9ad8a", "#56a8dc", "#1668b8")
# colours of consecutive chains, by Okabe and Ito (2008), distinguishable with any kind of colour vision
CHAIN_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f98")
# the colours as the pages' scripts read them
PALETTES: Mapping[str, Any] = {
    "confidence": list(map(list, CONFIDENCE_CLASSES)),
    "pae": PAE_COLOURS,
    "maxPae": MAX_PAE,
    "identity": IDENTITY_COLOURS,
    "chains": CHAIN_COLOURS,
}


def confidence_class(plddt: float) -> int:
    """Return the index of a pLDDT's class in CONFIDENCE_CLASSES."""
    return next(i for i, (lowest, _, _) in enumerate(CONFIDENCE_CLASSES) if plddt >= lowest or lowest == 0)


def pack_array(array: np.ndarray, dtype: str) -> str:
    """Return an array's bytes as base64, little-endian, in row-major order."""
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def pack_plddt(plddt: np.ndarray) -> str:
    """Return pLDDT, 0 to 100, in units of 0.01; see `pack_array`."""
    return pack_array(np.rint(np.clip(plddt, 0, 100) * 100), "u2")


def pae_data(pae: PaeMap) -> dict[str, Any]:
    """Return a PAE as the page's scripts read it."""
    cells = pack_array(pae.cells, "u1")
    return {"side": len(pae.cells), "block": pae.block, "mean": round(pae.mean, 2), "cells": cells}


def pae_values(pae: PaeMap) -> dict[str, Any]:
    """Return the values of a page's template about a PAE."""
    return {"mean": f"{pae.mean:.1f}", "block": pae.block, "step": PAE_STEP, "maximum": MAX_PAE}


def coordinate_step(positions: Sequence[np.ndarray]) -> float:
    """Return the unit, Å, in which all coordinates are 16-bit integers."""
    extent = max((float(np.abs(array).max(initial=0.0)) for array in positions), default=0.0)
    return max(extent / 32767, 0.001)


def page_data(result: TargetResult, coverage: Coverage | None) -> dict[str, Any]:
    """Return the data that the page's scripts read.

    Coordinates are integers in units of `step` Å, after `superpositions`. pLDDT is in units of 0.01, PAE in
    units of PAE_STEP. `residueTypes` lists the distinct pairs of a residue's name and its atoms' names in
    order. `types` of a model has the index of each residue's pair in this list.
    """
    transforms = superpositions([model.atoms.atom("CA") for model in result.models])
    atoms = _stored_atoms(result.models)
    positions = [
        transform.apply(model_atoms.positions)
        for transform, model_atoms in zip(transforms, atoms, strict=True)
    ]
    step = coordinate_step(positions)
    types: dict[tuple[str, bytes], int] = {("", b""): 0}
    models = [
        _model_data(model, model_atoms, np.rint(transformed / step), types)
        for model, model_atoms, transformed in zip(result.models, atoms, positions, strict=True)
    ]
    return {
        "name": result.name,
        "sequence": result.sequence,
        "chains": [list(chain) for chain in result.chains],
        "confidence": result.confidence,
        "step": step,
        "residueTypes": [[name, atom_names.decode("ascii", "replace")] for name, atom_names in types],
        "models": models,
        "paeStep": PAE_STEP,
        "coverage": None if coverage is None else _coverage_data(coverage),
        "palettes": PALETTES,
    }


def _stored_atoms(models: Sequence[RankedModel]) -> list[ModelAtoms]:
    """Return all atoms of the best models, and the backbone of models beyond MAX_ATOMS."""
    stored, count = [], 0
    for model in models:
        count += len(model.atoms.names)
        stored.append(model.atoms if count <= MAX_ATOMS else model.atoms.backbone())
    return stored


def _model_data(
    model: RankedModel, atoms: ModelAtoms, coordinates: np.ndarray, types: dict[tuple[str, bytes], int]
) -> dict[str, Any]:
    """Return the data of a model; add its new residue types to `types`."""
    ends = np.searchsorted(atoms.residues, np.arange(len(atoms.components) + 1))
    residue_types = [
        types.setdefault((component, b" ".join(atoms.names[start:end].tolist())), len(types))
        for component, start, end in zip(atoms.components, ends[:-1], ends[1:], strict=True)
    ]
    return {
        "rank": model.rank,
        "tag": model.tag,
        "mean": round(float(model.plddt.mean()), 1),
        "ptm": model.ptm,
        "types": pack_array(np.array(residue_types), "u2"),
        "atoms": pack_array(coordinates, "i2"),
        "sideChains": atoms is model.atoms,
        "secondary": secondary_structure(model.atoms),
        "plddt": pack_plddt(model.plddt),
        "pae": None if model.pae is None else pae_data(model.pae),
    }


def secondary_structure(atoms: ModelAtoms) -> str:
    """Return a letter for each residue, see `assign_secondary_structure`."""
    backbone = [atoms.atom(name) for name in ("N", "CA", "C", "O")]
    return assign_secondary_structure(backbone, atoms.sequence, atoms.chain_starts)


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


@dataclass(frozen=True, eq=False)
class RigidTransform:
    """A rotation followed by a translation.

    Args:
        rotation: float64 [3, 3], applied to row vectors from the right.
        translation: float64 [3], Å.
    """

    rotation: np.ndarray
    translation: np.ndarray

    def apply(self, positions: np.ndarray) -> np.ndarray:
        """Return transformed positions, float64 [..., 3]."""
        return positions @ self.rotation + self.translation


def superpositions(models: list[np.ndarray]) -> list[RigidTransform]:
    """Return transforms that centre and orient the first model, and superpose the others on it.

    The first model's longest axis becomes x, and its shortest axis becomes z, which points at the viewer.
    The centre is the middle of its extent along these axes, so that a view around it is filled on all sides.
    Each other model is superposed on it over the residues that both have (Kabsch, Acta Cryst. A 32, 922,
    1976). No model is mirrored.

    Args:
        models: coordinates of each model, float64 [N, 3]; NaN for missing residues.
    """
    present = np.isfinite(models[0]).all(1)
    if not present.any():
        return [RigidTransform(np.eye(3), np.zeros(3))] * len(models)
    rotation = principal_axes(models[0][present], reversible=2).T
    oriented = models[0][present] @ rotation
    transforms = [RigidTransform(rotation, -(oriented.min(0) + oriented.max(0)) / 2)]
    first = transforms[0].apply(models[0])
    for model in models[1:]:
        shared = present & np.isfinite(model).all(1)
        if not shared.any():
            transforms.append(transforms[0])
            continue
        transforms.append(RigidTransform(*superpose(model[shared], first[shared])))
    return transforms


def principal_axes(points: np.ndarray, reversible: int) -> np.ndarray:
    """Return the principal axes of points as rows of a rotation, float64 [3, 3], the longest first.

    Args:
        points: float64 [n, 3], Å; less than three have the axes of the coordinates.
        reversible: index of the axis that is reversed if the axes would be a reflection.
    """
    _, _, axes = np.linalg.svd(points - points.mean(0), full_matrices=False)
    if len(axes) < 3:
        return np.eye(3)
    axes[reversible] *= np.sign(np.linalg.det(axes)) or 1.0
    return axes
