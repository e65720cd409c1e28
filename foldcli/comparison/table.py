"""Tables of comparisons with a reference."""

import json
import math
from typing import Any

from foldcli.comparison.read import read_molecules
from foldcli.logs import logger
from model.comparison.chains import ComparedMolecules
from model.comparison.compare import compare
from msa.base.errors import InputError

_DIGITS = 4
# keys of a row that only JSON has
_DETAILS = ("interfaces", "ligands", "residues_lddt", "trace")


def compare_file(path: str, reference: ComparedMolecules) -> dict[str, Any]:
    """Return the scores of a model as a row of the table, and warn of what could not be compared.

    Raises:
        InputError: the file is not a structure, or has no chain of the reference.
    """
    result = compare(read_molecules(path), reference)
    if result is None:
        raise InputError("no chain has the sequence of a chain of the reference", path)
    for remark in result.remarks:
        logger.warning("%s: %s", path, remark)
    return {
        "model": str(path),
        **_rounded(result.scores),
        "chains": result.chains,
        "interfaces": _rounded(result.interfaces),
        "ligands": _rounded(result.ligands),
        "residues_lddt": _rounded(result.residues),
    }


def format_rows(rows: list[dict[str, Any]], as_json: bool) -> str:
    """Return rows as JSON or as a table with tabs."""
    if as_json:
        return json.dumps(rows, indent=1) + "\n"
    lines: list[str] = []
    for row in rows:
        cells = {name: _cell(value) for name, value in row.items() if name not in _DETAILS}
        lines += [] if lines else ["\t".join(cells)]
        lines.append("\t".join(cells.values()))
    return "".join(f"{line}\n" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _rounded(value: Any) -> Any:
    """Return a value with rounded numbers; NaN becomes None."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, _DIGITS)
    return value
