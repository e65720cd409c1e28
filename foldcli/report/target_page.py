"""The page of one target: a single HTML file with everything a reader needs."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from foldcli.report.alignment import AlignmentSummary, HitRow
from foldcli.report.markup import (
    Markup,
    data_block,
    document,
    element,
    format_duration,
    format_gib,
    join,
    note,
    read_asset,
    section,
    table,
)
from foldcli.report.page_data import page_data
from foldcli.report.panels import coverage_section, pae_section, plddt_section, structure_section
from foldcli.report.result import RankedModel, TargetResult
from foldcli.report.templates import read_template_rows, templates_section
from foldcli.report.viewer import Viewer

# in the order in which they depend on each other
SCRIPTS = ("state.js", "plot.js", "structure.js", "pae.js", "plddt.js", "coverage.js", "page.js")
_REFERENCES = (
    "Jumper et al., Nature 596, 583 (2021), for the network and its confidences; "
    "Mirdita et al., Nature Methods 19, 679 (2022), for file names and plots"
)
# alignment columns per line
_LINE_WIDTH = 60
# facts of done.json in plain words, where the name with spaces for underscores does not do
_FACT_NAMES = {
    "waited_for_features_seconds": "time spent waiting for features",
    "peak_gpu_memory_bytes": "peak GPU memory",
    "feature_cache_hit": "features taken from the cache",
    "alignment_rows": "rows of the alignment",
    "alignment": "alignment file",
}


def target_page(
    result: TargetResult, alignment: AlignmentSummary | None, missing: str, viewer: Viewer
) -> str:
    """Return the HTML of one target.

    Args:
        result: see TargetResult.
        alignment: its alignment, or None.
        missing: reason why there is no alignment.
        viewer: the structure viewer, or the reason why there is none.
    """
    parts = [
        _header(result, alignment),
        _warnings(result),
        _models_section(result),
        element("div", structure_section(viewer), pae_section(result), class_="pair"),
        plddt_section(result),
        coverage_section(alignment, missing),
        _hits_section(alignment, missing),
        templates_section(read_template_rows(result.files.path("templates")), len(result.sequence)),
        _provenance_section(result),
        _explanation_section(viewer),
    ]
    data = page_data(result, alignment.coverage if alignment else None)
    body = element("main", *parts, data_block(data, "data"))
    scripts = [viewer.script, _page_script()]
    return document(f"{result.name}: predicted structure", body, [read_asset("style.css")], scripts)


def _page_script() -> str:
    # one function scope, so that no name collides with the viewer's
    body = "\n".join(read_asset(name) for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{body}}})();\n"


def _header(result: TargetResult, alignment: AlignmentSummary | None) -> Markup:
    best = result.models[0]
    header = result.done.get("settings", {}).get("header")
    # the recorded depth, if known, counts identical rows once
    depth = result.done.get("facts", {}).get(
        "alignment_rows", alignment.coverage.depth if alignment else None
    )
    tiles = [("residues", f"{len(result.sequence):,}")]
    if depth is not None:
        tiles.append(("rows of the alignment", f"{depth:,}"))
    tiles.append(("mean pLDDT, best model", f"{best.plddt.mean():.1f}"))
    if best.ptm is not None:
        tiles.append(("pTM, best model", f"{best.ptm:.2f}"))
    if stages := result.done.get("stages"):
        tiles.append(("total time", format_duration(sum(stage["seconds"] for stage in stages))))
    return element(
        "header",
        element("h1", result.name),
        element("p", header, class_="subtitle") if header and header != result.name else "",
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in tiles),
            class_="tiles",
        ),
    )


def _warnings(result: TargetResult) -> Markup:
    warnings = [warning for warning in result.done.get("warnings", []) if "UNTRAINED" not in warning]
    parts = []
    if result.untrained:
        title = element("strong", "Untrained parameters: this is not a prediction.")
        text = (
            " The network's parameters are random numbers, for demonstration only. Coordinates, pLDDT, PAE "
            "and pTM on this page mean nothing; only the search and the alignment are real."
        )
        parts.append(element("div", title, text, class_="alarm", role="alert"))
    if warnings:
        items = element("ul", *(element("li", warning) for warning in warnings))
        parts.append(element("div", element("strong", "Warnings"), items, class_="caution", role="note"))
    return join(parts)


def _models_section(result: TargetResult) -> Markup:
    ranking = {entry.get("tag"): entry for entry in result.done.get("ranking", [])}
    rows = [_model_row(model, ranking.get(model.tag, {})) for model in result.models]
    columns = ("rank", "pLDDT", "pTM", "mean PAE", "model", "recycles", "time", "files")
    omitted: object = ""
    if result.model_count > len(result.models):
        omitted = note(f"The best {len(result.models)} of {result.model_count} models; all are in the files.")
    return section("Models", "models", table(columns, rows, "Choose the model to show"), omitted)


def _model_row(model: RankedModel, record: dict[str, Any]) -> tuple[object, ...]:
    input_id = f"model-{model.rank}"
    radio = element(
        "input",
        type="radio",
        name="model",
        id=input_id,
        value=model.rank - 1,
        checked=model.rank == 1,
        autocomplete="off",
    )
    links = [element("a", file.rpartition(".")[2].upper(), href=quote(file)) for file in model.files]
    return (
        element("label", radio, f" {model.rank}", for_=input_id),
        f"{model.plddt.mean():.1f}",
        "–" if model.ptm is None else f"{model.ptm:.2f}",
        "–" if model.pae is None else f"{model.pae.mean:.1f} Å",
        model.tag,
        str(record.get("num_recycles", "–")),
        format_duration(record["seconds"]) if "seconds" in record else "–",
        element("span", *links, class_="files"),
    )


def _hits_section(alignment: AlignmentSummary | None, missing: str) -> Markup:
    if alignment is None or not alignment.hits:
        no_hits = "The alignment has only the query, or comes from the feature cache, which stores no names."
        return section("Hits", "hits", note(no_hits if alignment else missing))
    columns = ("hit", "E-value", "bits", "identity", "query", "target", "alignment")
    shown = "All"
    if alignment.hit_count > len(alignment.hits):
        shown = f"The first {len(alignment.hits)} of {alignment.hit_count:,}"
    caption = f"{shown} hits, in the order of the search"
    return section("Hits", "hits", table(columns, map(_hit_row, alignment.hits), caption, id="hits-table"))


def _hit_row(hit: HitRow) -> tuple[object, ...]:
    def format_span(span: tuple[int, int] | None) -> str:
        return f"{span[0]}–{span[1]}" if span else "–"

    alignment: object = "not in the alignment: filtered out, or identical to another row"
    if hit.aligned is not None:
        summary = element("summary", "show", aria_label=f"Alignment with {hit.name}")
        lines = _alignment_lines(hit.aligned, hit.query_span, hit.target_span)
        alignment = element("details", summary, element("pre", lines))
    return (
        hit.name, hit.evalue or "–", hit.bits or "–", f"{100 * hit.identity:.0f} %",
        format_span(hit.query_span), format_span(hit.target_span), alignment,
    )  # fmt: skip


def _alignment_lines(
    aligned: tuple[str, str], query_span: Sequence[int] | None, target_span: Sequence[int] | None
) -> str:
    """Return query, identities and target in lines of _LINE_WIDTH columns, with their start positions."""
    query, target = aligned
    i, j = query_span[0] if query_span else 1, target_span[0] if target_span else 1
    lines = []
    for start in range(0, len(query), _LINE_WIDTH):
        a, b = query[start : start + _LINE_WIDTH], target[start : start + _LINE_WIDTH]
        identities = "".join("|" if x == y != "-" else " " for x, y in zip(a, b, strict=True))
        lines += [
            f"query  {i:>5} {a}",
            f"{'':12} {identities}",
            f"target {j:>5} {b}" if target_span else f"target {'':5} {b}",
            "",
        ]
        i, j = i + len(a) - a.count("-"), j + len(b) - b.count("-")
    return "\n".join(lines[:-1])


def _provenance_section(result: TargetResult) -> Markup:
    title, done = "How it was made", result.done
    if not done:
        return section(title, "provenance", note("This folder has no record of settings and run times."))
    stages = [
        (stage["stage"], format_duration(stage["seconds"]), format_gib(stage["peak_memory_bytes"]))
        for stage in done.get("stages", [])
    ]
    settings = _flatten(
        {key: value for key, value in done.get("settings", {}).items() if key not in ("query", "header")}
    )
    facts = _fact_rows(done.get("facts", {}))
    boxes = [
        table(("stage", "time", "peak memory"), stages, "Time and memory of each stage") if stages else "",
        table((), list(done.get("versions", {}).items()), "Versions"),
        table((), facts, "Facts about this run") if facts else "",
    ]
    all_settings = element("details", element("summary", "All settings"), table((), settings, "Settings"))
    return section(title, "provenance", element("div", *boxes, class_="boxes"), all_settings)


def _fact_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of done.json as (name, value) in plain words."""
    shown = {key: value for key, value in facts.items() if key not in ("search", "templates")}
    if isinstance(facts.get("search"), dict):
        shown = {"hits": facts["search"].get("hits")} | shown
    if "alignment" in facts:
        # pages are sent to other people, so they show no folders of this machine
        shown["alignment"] = PurePath(facts["alignment"]).name
    return [(_FACT_NAMES.get(key, key.replace("_", " ")), _fact_text(key, shown[key])) for key in shown]


def _fact_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and key.endswith("_seconds"):
        return format_duration(value)
    if isinstance(value, int | float) and key.endswith("_bytes"):
        return format_gib(value)
    return str(value)


def _flatten(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Return (path, value) for every leaf of a JSON value."""
    if isinstance(value, dict):
        return [
            pair for key, inner in value.items() for pair in _flatten(inner, f"{path}.{key}" if path else key)
        ]
    if isinstance(value, list):
        return [pair for i, inner in enumerate(value, 1) for pair in _flatten(inner, f"{path}.{i}")]
    return [(path, "none" if value is None else str(value))]


def _explanation_section(viewer: Viewer) -> Markup:
    credit = f" The structure is drawn by py2Dmol {viewer.version} (S. Ovchinnikov)." if viewer.script else ""
    paragraphs = (
        "pLDDT (0 to 100) estimates how well the surroundings of each residue agree with an experimental "
        "structure. Values under 50 often mark a disordered region, whose coordinates are not meaningful.",
        "PAE is the expected position error of one residue (across) when the predicted and the true "
        "structure are aligned on another (down). If the error is low within two domains and high between "
        "them, each domain is predicted, but not their relative position.",
        "pTM (0 to 1) estimates the TM-score of the whole chain. None of these scores says whether the "
        "protein is stable, what a mutation does, or what it binds.",
        f"Sources: {_REFERENCES}.{credit} This page is self-contained and makes no network requests; links "
        "to files work while it is in the same folder.",
    )
    return section("What the numbers mean", "explanation", *(element("p", text) for text in paragraphs))
