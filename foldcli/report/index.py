"""index.html: one table of all targets of a folder, built from their done.json files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from features.templates.homology import template_name
from foldcli.outputs.done import facts_of, read_done_record
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import FileKind, TargetFiles, find_done_files, find_unfinished_names
from foldcli.report.rendering import render_page
from msa.base.atomic import atomic_write
from msa.base.json_files import parse_json

INDEX = "index.html"
_UNTRAINED = "untrained"


@dataclass(frozen=True)
class IndexRow:
    """One target of the index; None stands for unknown values.

    Args:
        description: the rest of the header after the name.
        template: the best template, or the one that was copied.
        plddt: mean pLDDT of the best model, 0 to 100.
        ptm: pTM of the best model.
        expected: accuracy that is expected of such inputs, lDDT-CA from 0 to 100; the mean.
        expected_text: its range for single proteins, or the mean if there is none.
        iptm: ipTM of the best model of a complex.
    """

    name: str
    status: str
    length: int | None = None
    depth: int | None = None
    description: str = ""
    template: str | None = None
    plddt: float | None = None
    ptm: float | None = None
    expected: float | None = None
    expected_text: str = ""
    iptm: float | None = None
    seconds: float | None = None
    page: str | None = None
    thumbnail: str | None = None
    note: str = ""


def write_index(out: Path) -> Path | None:
    """Write OUT/index.html if OUT has several targets, finished or failed.

    Another job may finish a target while the index is written. It is therefore written again until the
    targets' records no longer change. If several jobs end together, the last index includes all targets.

    Returns:
        Its path; None if there are fewer than two targets.
    """
    while True:
        times_before = _record_times(out)
        rows = index_rows(out)
        if len(rows) < 2:
            return None
        with atomic_write(out / INDEX) as stream:
            stream.write(index_page(rows, out.resolve().name))
        if _record_times(out) == times_before:
            return out / INDEX


def index_rows(out: Path) -> list[IndexRow]:
    """Return one row for each finished, failed or unfinished target, by name."""
    rows = {name: IndexRow(name, "not finished") for name in find_unfinished_names(out)}
    for path in find_done_files(out):
        if (row := _finished_row(out, path)) is not None:
            rows[row.name] = row
    for name, error in _read_errors(out).items():
        earlier_row = rows.get(name)
        if earlier_row is not None and earlier_row.page is not None:
            rows[name] = replace(
                earlier_row, status="failed", note=f"{error}. The results shown are from an earlier run."
            )
        else:
            rows[name] = IndexRow(name, "failed", note=error)
    return [rows[name] for name in sorted(rows)]


def _record_times(out: Path) -> list[tuple[str, int]]:
    """Return the modification times of all files that the index is built from."""
    times = []
    for path in [*find_done_files(out), *sorted(out.glob("failures*.jsonl"))]:
        try:
            times.append((str(path), path.stat().st_mtime_ns))
        except OSError:  # removed since it was listed
            continue
    return times


def _finished_row(out: Path, path: Path) -> IndexRow | None:
    """Return the row of a done.json; None if another program wrote or renamed the file, or it is gone."""
    try:
        done = read_done_record(path)
        name, best = str(done["name"]), done["ranking"][0]
        facts, warnings = facts_of(done), done.get("warnings", [])
        seconds = sum(stage["seconds"] for stage in done.get("stages", []))
        plddt, ptm, iptm = float(best["plddt"]), best.get("ptm"), best.get("iptm")
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None

    # page and thumbnail are next to the record in every layout
    files = TargetFiles(name, path.parent, "single_folder")
    if files.path("done") != path:
        return None

    def link(kind: FileKind) -> str | None:
        file = files.path(kind)
        return file.relative_to(out).as_posix() if file.is_file() else None

    expected, expected_text = _expected_accuracy(facts)
    is_untrained = any("UNTRAINED" in warning for warning in warnings)
    return IndexRow(
        name,
        _UNTRAINED if is_untrained else "finished, with warnings" if warnings else "finished",
        length=facts.residues or None,
        depth=facts.alignment_rows or None,
        plddt=plddt,
        ptm=None if ptm is None else float(ptm),
        iptm=None if iptm is None else float(iptm),
        seconds=seconds,
        page=link("report"),
        thumbnail=link("thumbnail"),
        note=" ".join(warning for warning in warnings if "UNTRAINED" not in warning),
        description=_description(done, name),
        template=_best_template(facts, best),
        expected=expected,
        expected_text=expected_text,
    )


def _description(done: dict[str, Any], name: str) -> str:
    """Return the header of a target's sequence without the name of the target."""
    header = str((done.get("settings") or {}).get("header") or "")
    return header.removeprefix(name).strip()


def _best_template(facts: Facts, best: dict[str, Any]) -> str | None:
    """Return the best template with its identity; None if no template was used, or it is not known."""
    if best.get("copied_from"):
        return f"copied from {best['copied_from']}"
    if not facts.templates or not facts.templates[0].id:
        return None
    template = facts.templates[0]
    share = "" if template.identity is None else f", {100 * template.identity:.0f} % identity"
    return f"{template_name(template.id)}{share}"


def _expected_accuracy(facts: Facts) -> tuple[float | None, str]:
    """Return the expected lDDT-CA from 0 to 100, and its range as text; None if it was not measured."""
    expected = facts.expected_lddt
    if expected is None or expected.lddt is None:
        return None, ""
    # older records have fractions
    scale = 100 if expected.lddt <= 1 else 1
    low, high = expected.percentile_10, expected.percentile_90
    if low is not None and high is not None:
        return scale * expected.lddt, f"{scale * low:.0f} to {scale * high:.0f}"
    return scale * expected.lddt, f"mean {scale * expected.lddt:.0f}"


def _read_errors(out: Path) -> dict[str, str]:
    """Return the error of each failed target, by name."""
    errors = {}
    for path in sorted(out.glob("failures*.jsonl")):
        try:
            for line in path.read_text().splitlines():
                entry: dict[str, Any] = parse_json(line)
                errors[str(entry["target"])] = str(entry["error"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return errors


def index_page(rows: list[IndexRow], title: str) -> str:
    """Return the HTML of the index."""
    failed = sum(row.status == "failed" for row in rows)
    unfinished = sum(row.status == "not finished" for row in rows)
    counts = [
        f"{len(rows):,} targets",
        f"{failed:,} failed" if failed else "",
        f"{unfinished:,} not finished" if unfinished else "",
    ]
    # columns that are empty for all targets are left out
    complexes = any(row.iptm is not None for row in rows)
    templates = any(row.template for row in rows)
    expected = any(row.expected is not None for row in rows)
    return render_page(
        "index.html",
        ["index.js", "tables.js"],
        # thumbnails are separate files in this folder
        image_sources="'self' file: data:",
        title=title,
        counts=", ".join(filter(None, counts)),
        untrained=any(row.status == _UNTRAINED for row in rows),
        columns=(
            "target",
            "length",
            "depth",
            *(("best template",) if templates else ()),
            *(("expected lDDT",) if expected else ()),
            "pLDDT",
            "pTM",
            *(("ipTM",) if complexes else ()),
            "time",
            "status",
        ),
        complexes=complexes,
        templates=templates,
        expected=expected,
        rows=rows,
    )
