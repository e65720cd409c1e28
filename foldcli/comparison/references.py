"""Comparison of the targets of a run with experimental structures in a folder."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from foldcli.comparison.read import read_molecules
from foldcli.comparison.table import compare_file, format_rows
from foldcli.inputs.names import file_endings, file_safe_name
from foldcli.outputs.layout import TargetFiles
from model.comparison.chains import ComparedMolecules, map_chains
from model.comparison.superposition import superpose
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import read_json, write_json
from msa.io.compression import list_folder

_ENDINGS = file_endings((".cif", ".mmcif", ".pdb", ".ent"))


def find_reference(folder: Path, name: str) -> Path | None:
    """Return the structure of a target: NAME.cif, .mmcif, .pdb or .ent, compressed or not; None without one.

    Raises:
        InputError: the folder has several.
    """
    found = _structures(folder).get(name, [])
    if len(found) > 1:
        raise InputError(f"another structure of target {name}, besides {found[0].name}", found[1])
    return found[0] if found else None


@cache
def _structures(folder: Path) -> dict[str, list[Path]]:
    """Return the structure files of a folder by the names of their targets."""
    found: dict[str, list[Path]] = {}
    for path in list_folder(folder):
        for ending in _ENDINGS:
            if path.name.lower().endswith(ending):
                found.setdefault(file_safe_name(path.name[: -len(ending)]), []).append(path)
    return found


def compare_target(
    files: TargetFiles, models: Iterable[tuple[int, str]], reference: Path
) -> list[dict[str, Any]]:
    """Write NAME_comparison.json, and return its rows.

    Raises:
        InputError: the reference cannot be used, or has no sequence of the target.
    """
    expected = read_molecules(reference)
    rows: list[dict[str, Any]] = []
    for rank, tag in models:
        path = files.existing_structures(rank, tag)[0]
        row = {"target": files.name, "rank": rank} | compare_file(str(path), expected) | {"model": path.name}
        # the page shows the reference on the best model
        rows.append(row if rows else row | {"trace": _superposed_trace(read_molecules(path), expected)})
    write_json(files.path("comparison"), rows, indent=1)
    return rows


def _superposed_trace(model: ComparedMolecules, reference: ComparedMolecules) -> dict[str, Any]:
    """Return names and CA or C3' atoms of the reference by chain, superposed on a model; {} if impossible."""
    pairs = map_chains(model.chains, reference.chains)[0]
    traces = [np.concatenate(side) for side in zip(*(pair.trace() for pair in pairs), strict=True)]
    if len(traces[0]) < 3:
        return {}
    rotation, shift = superpose(traces[1], traces[0])
    return {
        chain.name: {
            "names": chain.names,
            "atom": chain.trace,
            "positions": [
                (atoms[chain.trace] @ rotation + shift).round(2).tolist() if chain.trace in atoms else None
                for atoms in chain.residues
            ],
        }
        for chain in reference.chains
    }  # fmt: skip


def write_run_table(out: Path, targets: Iterable[TargetFiles]) -> None:
    """Write OUT/comparison.tsv, the rows of all targets that have been compared."""
    paths = [files.path("comparison") for files in targets]
    rows = [row for path in paths if path.is_file() for row in read_json(path)]
    with atomic_write(out / "comparison.tsv") as stream:
        stream.write(format_rows(rows, as_json=False))
