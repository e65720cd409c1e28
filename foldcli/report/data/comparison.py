"""The comparison of a target's models with a reference, as its page shows it."""

from typing import Any

# score → heading, of the table
_COLUMNS = {
    "lddt": "lDDT", "tm_score": "TM-score", "gdt_ts": "GDT-TS", "rmsd_ca": "RMSD of CA, Å", "dockq": "DockQ",
    "ligand_rmsd": "ligand RMSD, Å", "lddt_pli": "lDDT-PLI", "aligned": "residues compared",
}  # fmt: skip
WIDTH, HEIGHT = 1000, 100


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
    }
