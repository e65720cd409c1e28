"""The states of a target and the comparison of its models with a reference, as its page shows them."""

import re
import string
from collections import Counter
from typing import Any

import numpy as np

from foldcli.outputs.done import facts_of
from foldcli.report.data.page_data import RigidTransform

_CHAIN_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
# score → heading, of the table
_COLUMNS = {
    "lddt": "lDDT", "tm_score": "TM-score", "gdt_ts": "GDT-TS", "rmsd_ca": "RMSD of CA, Å", "dockq": "DockQ",
    "ligand_rmsd": "ligand RMSD, Å", "lddt_pli": "lDDT-PLI", "aligned": "residues compared",
}  # fmt: skip
WIDTH, HEIGHT = 1000, 100
_SEED = re.compile(r"_seed_(\d+)")


def comparison_values(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the values of the section about the comparison; None without one."""
    if not rows:
        return None
    keys = [key for key in _COLUMNS if any(row[key] is not None for row in rows)]
    values = [value for chain in rows[0]["residues_lddt"].values() for value in chain]
    step = WIDTH / len(values)
    path, command = [], "M"
    for number, value in enumerate(values):
        if value is not None:
            path.append(f"{command}{number * step:.1f} {HEIGHT * (1 - value):.1f}")
        # residues without a value interrupt the line
        command = "M" if value is None else "L"
    ends, position = [], 0
    for name, chain in rows[0]["residues_lddt"].items():
        ends.append((name, round(position * step, 1)))
        position += len(chain)
    return {
        "columns": ["rank", *(_COLUMNS[key] for key in keys)],
        "rows": [
            [str(row["rank"]), *("–" if row[key] is None else str(round(row[key], 2)) for key in keys)]
            for row in rows
        ],
        "path": "".join(path),
        "chains": ends,
        "width": WIDTH,
        "height": HEIGHT,
        "residues": len(values),
        "trace": rows[0].get("trace", {}),
    }


def reference_text(comparison: dict[str, Any] | None, transform: RigidTransform) -> str:
    """Return one atom of each residue of the reference as PDB text; "" without a reference.

    Args:
        comparison: from `comparison_values`.
        transform: from the coordinates of the best model's file to those of the page.
    """
    lines: list[str] = []
    for number, chain in enumerate((comparison or {}).get("trace", {}).values()):
        letter = _CHAIN_LETTERS[number % len(_CHAIN_LETTERS)]
        for index, (name, position) in enumerate(zip(chain["names"], chain["positions"], strict=True), 1):
            if position is not None:
                xyz = "".join(f"{value:8.3f}" for value in transform.apply(np.array(position)))
                atom = f"{len(lines) % 99999 + 1:5d}  {chain['atom']:<3} {name:>3} {letter}{index % 9999:4d}"
                lines.append(f"ATOM  {atom}    {xyz}  1.00  0.00           C\n")
        lines.append("TER\n")
    return "".join(lines)


def state_values(done: dict[str, Any]) -> dict[str, Any] | None:
    """Return the table of a target's states; None without any."""
    facts = facts_of(done)
    if not (states := facts.states):
        return None
    ranks = {model["tag"]: model["rank"] for model in done["ranking"]}
    sizes = [] if facts.row_clusters is None else facts.row_clusters.rows
    rows = [
        (
            str(number),
            str(len(state.models)),
            f"rank {ranks.get(state.medoid, '–')}",
            f"{state.tm_score:.2f}",
            _alignments(state.models, sizes),
        )
        for number, state in enumerate(states, 1)
    ]
    columns = ("state", "models", "in its middle", "TM-score with state 1", "alignments")
    return {"columns": columns, "rows": rows}


def _alignments(tags: list[str], sizes: list[int]) -> str:
    """Return the alignments of models in words; with clusters, a seed is the number of its cluster."""
    seeds = [int(match[1]) if (match := _SEED.search(tag)) else 0 for tag in tags]
    if not sizes:
        return "seed " + ", ".join(map(str, sorted(set(seeds))))
    names = Counter(
        f"cluster {seed} ({sizes[seed - 1]} rows)" if 1 <= seed <= len(sizes) else "all rows"
        for seed in seeds
    )
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in names.items())
