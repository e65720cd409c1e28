"""index.html: all targets of a folder in one table, made from their done.json files at any time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from foldcli.outputs.layout import FileKind, TargetFiles, find_done_files, find_unfinished_names
from foldcli.report.elements import Markup, asset, document, element, joined
from foldcli.report.words import seconds
from msa.io.atomic import atomic_write

INDEX = "index.html"
_UNTRAINED = "untrained"


@dataclass(frozen=True)
class Row:
    """One target; None is not known."""

    name: str
    status: str
    length: int | None = None
    depth: int | None = None
    plddt: float | None = None
    ptm: float | None = None
    seconds: float | None = None
    page: str | None = None
    thumbnail: str | None = None
    note: str = ""


def write_index(out: Path) -> Path | None:
    """(Re)make OUT/index.html, where OUT holds several targets, finished or failed.

    Another job may finish a target while this one looks: it is looked again until nothing has changed, so
    that of jobs that end together the last to write knows all.

    Returns:
        Its path; None where there are fewer than two targets.
    """
    while True:
        before = _sources(out)
        rows = index_rows(out)
        if len(rows) < 2:
            return None
        with atomic_write(out / INDEX) as stream:
            stream.write(index_page(rows, out.resolve().name))
        if _sources(out) == before:
            return out / INDEX


def index_rows(out: Path) -> list[Row]:
    """One row for each target that is finished, failed or half-way, by name."""
    rows = {name: Row(name, "not finished") for name in find_unfinished_names(out)}
    for path in find_done_files(out):
        if (row := _finished(out, path)) is not None:
            rows[row.name] = row
    for name, error in _failures(out).items():
        earlier = rows.get(name)
        if earlier is not None and earlier.page is not None:
            rows[name] = Row(
                **(
                    vars(earlier)
                    | {"status": "failed", "note": f"{error}. What is shown is an earlier run's."}
                )
            )
        else:
            rows[name] = Row(name, "failed", note=error)
    return [rows[name] for name in sorted(rows)]


def _sources(out: Path) -> list[tuple[str, int]]:
    found = []
    for path in [*find_done_files(out), *sorted(out.glob("failures*.jsonl"))]:
        try:
            found.append((str(path), path.stat().st_mtime_ns))
        except OSError:  # gone since it was listed
            continue
    return found


def _finished(out: Path, path: Path) -> Row | None:
    try:
        done = json.loads(path.read_text())
        name, best = str(done["name"]), done["ranking"][0]
        facts, warnings = done.get("facts", {}), done.get("warnings", [])
        total = sum(stage["seconds"] for stage in done.get("stages", []))
        plddt, ptm = float(best["plddt"]), best.get("ptm")
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        # written by something else, or gone: another target's page must not fail for it
        return None

    # in each layout these lie beside the record
    files = TargetFiles(name, path.parent, "single_folder")

    def there(kind: FileKind) -> str | None:
        file = files.path(kind)
        return file.relative_to(out).as_posix() if file.is_file() else None

    untrained = any("UNTRAINED" in warning for warning in warnings)
    status = _UNTRAINED if untrained else "finished, with warnings" if warnings else "finished"
    return Row(
        name, status, facts.get("residues"), facts.get("alignment_rows"), plddt,
        None if ptm is None else float(ptm), total, there("report"), there("thumbnail"),
        " ".join(warning for warning in warnings if "UNTRAINED" not in warning),
    )  # fmt: skip


def _failures(out: Path) -> dict[str, str]:
    failed = {}
    for path in sorted(out.glob("failures*.jsonl")):
        try:
            for line in path.read_text().splitlines():
                entry: dict[str, Any] = json.loads(line)
                failed[str(entry["target"])] = str(entry["error"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return failed


def index_page(rows: list[Row], title: str) -> str:
    """The HTML of the index."""
    failed = sum(row.status == "failed" for row in rows)
    half = sum(row.status == "not finished" for row in rows)
    parts = [
        f"{len(rows):,} targets",
        f"{failed:,} failed" if failed else "",
        f"{half:,} not finished" if half else "",
    ]
    alarm: object = ""
    if any(row.status == _UNTRAINED for row in rows):
        alarm = element(
            "div",
            element("strong", "Untrained parameters: these are not predictions."),
            " Structures and confidences of the targets marked untrained mean nothing.",
            class_="alarm",
            role="alert",
        )
    heads = [element("th", element("span", "structure", class_="hidden"), scope="col")]
    names = ("target", "length", "depth", "pLDDT", "pTM", "time", "status")
    for name in names:
        way = "ascending" if name == "target" else "none"
        heads.append(element("th", element("button", name, type="button"), scope="col", aria_sort=way))
    asked = element(
        "label",
        "Show targets with ",
        element("input", type="text", id="filter", autocomplete="off", spellcheck="false"),
    )
    body = element(
        "table",
        element("caption", "All targets; the heads of the columns sort"),
        element("thead", element("tr", *heads)),
        element("tbody", *map(_row, rows)),
        id="targets",
    )
    main = element(
        "main",
        element(
            "header",
            element("h1", title or "Targets"),
            element("p", ", ".join(filter(None, parts)), class_="subtitle"),
        ),
        alarm,
        element(
            "section",
            element("div", asked, element("output", "", id="shown", for_="filter"), class_="tools"),
            element("div", body, class_="scroll", tabindex=0, role="region", aria_label="Targets"),
        ),
    )
    # thumbnails lie beside the targets: pictures from this folder, none from elsewhere
    return document(
        f"{title}: targets", main, [asset("style.css")], [asset("index.js")], images="'self' file: data:"
    )


def _row(row: Row) -> Markup:
    def number(value: float | None, shown: str) -> Markup:
        return element(
            "td", "–" if value is None else shown, class_="number", data_value="" if value is None else value
        )

    picture: object = ""
    if row.thumbnail:
        picture = element("img", src=quote(row.thumbnail), alt=f"Fold of {row.name}, coloured by pLDDT",
                          class_="thumbnail", loading="lazy", width=64, height=64)  # fmt: skip
    name = element("a", row.name, href=quote(row.page)) if row.page else row.name
    status = element("span", row.status, class_=f"status-{row.status}" if row.status == "failed" else None)
    return element(
        "tr",
        element("td", picture),
        element("th", name, scope="row", data_value=row.name),
        number(row.length, f"{row.length or 0:,}"),
        number(row.depth, f"{row.depth or 0:,}"),
        number(row.plddt, f"{row.plddt or 0:.1f}"),
        number(row.ptm, f"{row.ptm or 0:.2f}"),
        number(row.seconds, seconds(row.seconds or 0)),
        element(
            "td",
            joined([status, element("p", row.note, class_="note") if row.note else ""]),
            data_value=row.status,
        ),
    )
