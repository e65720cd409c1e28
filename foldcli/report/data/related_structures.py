"""The structures that a page relates its target to: templates, and chains that look like the best model."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import gemmi
import numpy as np

from features.templates.homology import template_name
from foldcli.outputs.layout import TargetFiles
from foldcli.report.data.page_data import principal_axes
from msa.io.structures import read_structure

# maximum number of rows on a page; a library may have hundreds of relatives
MAX_TEMPLATE_ROWS = 30
# width of the whole query, in units of the drawing
_BAR_WIDTH = 600
# the same for similar structures
MAX_SIMILAR_ROWS = 20
# column of the table → heading
_COLUMNS = {
    "target": "structure", "evalue": "E-value", "prob": "probability", "qtmscore": "TM-score", "lddt": "lDDT",
    "fident": "identity", "alnlen": "aligned", "qstart": "from residue", "qend": "to residue",
}  # fmt: skip
_SIZE = 420  # units of the drawing's longer side
_MARGIN = 8
_MAX_STEP = 4.5  # Å, between CA atoms that a line connects


def read_template_rows(
    path: Path, length: int, chains: Sequence[tuple[str, int]] = ()
) -> list[dict[str, Any]]:
    """Return the rows of NAME_templates.tsv as text, "–" for unknown values; none if there is no such file.

    `bar` is the aligned part of the query: residues from 1, position and width in units of the drawing.
    """
    starts = dict(
        zip((name for name, _ in chains), accumulate((n for _, n in chains), initial=0), strict=False)
    )
    try:
        header, *lines = path.read_text().splitlines()
    except (OSError, ValueError):  # no file, or an empty one
        return []
    columns = header.split("\t")
    rows = [dict(zip(columns, line.split("\t"), strict=False)) for line in lines]
    return [_row(row, length, starts.get(row.get("chain", ""), 0)) for row in rows]


def _row(row: dict[str, str], length: int, start: int) -> dict[str, Any]:
    chain = f" (chain {row['chain']})" if "chain" in row else ""
    return {
        "name": template_name(row.get("template", "")) + chain,
        "identity": _percent(row.get("identity", "-")),
        "coverage": _percent(row.get("coverage", "-")),
        "evalue": "–" if row.get("evalue", "-") == "-" else row["evalue"],
        "bar": _bar(row, length, start),
        **{name: row.get(name, "") for name in ("used", "source", "reason")},
    }


def _percent(text: str) -> str:
    try:
        return f"{100 * float(text):.0f} %"
    except ValueError:
        return "–"


def _bar(row: dict[str, str], length: int, chain_start: int) -> dict[str, Any] | None:
    try:
        start, end = (chain_start + int(row[name]) for name in ("query_start", "query_end"))
    except (KeyError, ValueError):
        return None
    scale = _BAR_WIDTH / max(length, 1)
    x, width = f"{(start - 1) * scale:.1f}", f"{(end - start + 1) * scale:.1f}"
    return {"start": start, "end": end, "x": x, "width": width}


def similar_values(files: TargetFiles, model: Path) -> dict[str, Any] | None:
    """Return the values of the section about similar structures; None if they were not searched for."""
    if not files.path("similar").is_file():
        return None
    header, *lines = files.path("similar").read_text().splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    rows.sort(key=lambda row: float(row["evalue"]))
    structure = files.path("similar_structure")
    return {
        "columns": ["chain", *_COLUMNS.values()] if _has_chains(rows) else list(_COLUMNS.values()),
        "rows": [
            ([row["query"]] if _has_chains(rows) else []) + [row[name] for name in _COLUMNS]
            for row in rows[:MAX_SIMILAR_ROWS]
        ],
        "count": len(rows),
        "drawing": _drawing(model, structure) if rows and structure.is_file() else None,
        "best": rows[0]["target"] if rows else "",
    }


def _has_chains(rows: list[dict[str, str]]) -> bool:
    return len({row["query"] for row in rows}) > 1


def _drawing(model: Path, hit: Path) -> dict[str, Any]:
    """Return the traces of a model and its hit, seen along the model's shortest axis."""
    traces = [_trace(model), _trace(hit)]
    points = np.concatenate(traces[0])
    centre = points.mean(axis=0)
    axes = principal_axes(points, reversible=1)
    flat = [[(part - centre) @ axes[:2].T * [1, -1] for part in trace] for trace in traces]
    every = np.concatenate([part for trace in flat for part in trace])
    low = every.min(axis=0)
    scale = _SIZE / max(float((every.max(axis=0) - low).max()), 1.0)
    width, height = ((every.max(axis=0) - low) * scale + 2 * _MARGIN).round(1).tolist()
    return {
        "width": width,
        "height": height,
        "paths": ["".join(map(_path, [(part - low) * scale + _MARGIN for part in trace])) for trace in flat],
    }


def _path(points: np.ndarray) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points.tolist())


def _trace(path: Path) -> list[np.ndarray]:
    """Return the CA atoms of proteins in a structure, [n, 3], divided where neighbours are far apart."""
    parts = []
    for chain in read_structure(path).structure[0]:
        if chain.get_polymer().check_polymer_type() != gemmi.PolymerType.PeptideL:
            continue
        atoms = (residue.find_atom("CA", "*") for residue in chain.get_polymer())
        points = np.array([atom.pos.tolist() for atom in atoms if atom is not None]).reshape(-1, 3)
        breaks = np.flatnonzero(np.linalg.norm(np.diff(points, axis=0), axis=1) > _MAX_STEP) + 1
        parts += np.split(points, breaks)
    return parts
