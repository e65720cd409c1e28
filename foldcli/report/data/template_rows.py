"""The report's table of templates: their alignments over the query, and the reasons for rejections."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from features.templates.homology import template_name

# maximum number of rows on a page; a library may have hundreds of relatives
MAX_TEMPLATE_ROWS = 30
# width of the whole query, in units of the drawing
_BAR_WIDTH = 600


@dataclass(frozen=True)
class TemplateBar:
    """The aligned part of the query: residues from 1, position and width in units of the drawing."""

    start: int
    end: int
    x: str
    width: str


@dataclass(frozen=True)
class TemplateRow:
    """One template candidate, as text; "–" stands for unknown values.

    Args:
        name: PDB entry and chain, if the id tells them, or the id.
        used: its rank among the templates, or "no".
        coverage: share of the query's residues.
        bar: the aligned part of the query; None if it is unknown.
        reason: reason why it was not used; "" for used ones.
    """

    name: str
    used: str
    identity: str
    coverage: str
    evalue: str
    bar: TemplateBar | None
    source: str
    reason: str


def read_template_rows(path: Path, length: int, chains: Sequence[tuple[str, int]] = ()) -> list[TemplateRow]:
    """Return the rows of NAME_templates.tsv; none if there is no such file."""
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


def _row(row: dict[str, str], length: int, start: int) -> TemplateRow:
    chain = f" (chain {row['chain']})" if "chain" in row else ""
    return TemplateRow(
        template_name(row.get("template", "")) + chain,
        row.get("used", ""),
        _percent(row.get("identity", "-")),
        _percent(row.get("coverage", "-")),
        "–" if row.get("evalue", "-") == "-" else row["evalue"],
        _bar(row, length, start),
        row.get("source", ""),
        row.get("reason", ""),
    )


def _percent(text: str) -> str:
    try:
        return f"{100 * float(text):.0f} %"
    except ValueError:
        return "–"


def _bar(row: dict[str, str], length: int, chain_start: int) -> TemplateBar | None:
    try:
        start, end = (chain_start + int(row[name]) for name in ("query_start", "query_end"))
    except (KeyError, ValueError):
        return None
    scale = _BAR_WIDTH / max(length, 1)
    return TemplateBar(start, end, f"{(start - 1) * scale:.1f}", f"{(end - start + 1) * scale:.1f}")
