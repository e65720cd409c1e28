"""The report's section about templates: their alignments over the query, and the reasons for rejections."""

from pathlib import Path

from foldcli.report.markup import Markup, element, section, table

# rows that are shown; a library may have hundreds of relatives
_MAX_ROWS = 30
_WIDTH, _HEIGHT = 600, 14  # of a bar, in units of the drawing


def read_template_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of NAME_templates.tsv by column; none if there is no such file."""
    try:
        header, *lines = path.read_text().splitlines()
    except (OSError, ValueError):  # no file, or an empty one
        return []
    columns = header.split("\t")
    return [dict(zip(columns, line.split("\t"), strict=False)) for line in lines]


def templates_section(rows: list[dict[str, str]], length: int) -> Markup:
    """Return the section, or nothing if no templates were searched for.

    Args:
        rows: see `read_template_rows`.
        length: residues of the query.
    """
    if not rows:
        return Markup("")
    columns = (
        "template", "used", "identity", "coverage", "E-value", "aligned part of the query", "source",
        "not used because",
    )  # fmt: skip
    shown = "All" if len(rows) <= _MAX_ROWS else f"The first {_MAX_ROWS} of {len(rows)}"
    caption = f"{shown} template candidates, templates first"
    cells = [_row(row, length) for row in rows[:_MAX_ROWS]]
    return section("Templates", "templates", table(columns, cells, caption, id="templates-table"))


def _row(row: dict[str, str], length: int) -> tuple[object, ...]:
    return (
        row.get("template", ""),
        row.get("used", ""),
        _percent(row.get("identity", "-")),
        _percent(row.get("coverage", "-")),
        "–" if row.get("evalue", "-") == "-" else row["evalue"],
        _bar(row, length),
        row.get("source", ""),
        row.get("reason", ""),
    )


def _percent(text: str) -> str:
    try:
        return f"{100 * float(text):.0f} %"
    except ValueError:
        return "–"


def _bar(row: dict[str, str], length: int) -> object:
    """Return a drawing of the alignment's ends over the query."""
    try:
        start, end = int(row["query_start"]), int(row["query_end"])
    except (KeyError, ValueError):
        return "–"
    scale = _WIDTH / max(length, 1)
    opacity = 0.35 if row.get("used") == "no" else 1
    line = element("rect", x=0, y=_HEIGHT / 2 - 0.5, width=_WIDTH, height=1, fill="currentColor", opacity=0.3)
    bar = element(
        "rect",
        x=f"{(start - 1) * scale:.1f}",
        y=2,
        width=f"{(end - start + 1) * scale:.1f}",
        height=_HEIGHT - 4,
        fill="currentColor",
        opacity=opacity,
    )
    return element(
        "svg",
        element("title", f"residues {start} to {end} of {length}"),
        line,
        bar,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH // 3,
        height=_HEIGHT,
        role="img",
    )
