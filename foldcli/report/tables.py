"""The parts of a target's page that need no script: models, hits, and how the target was made."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from foldcli.report.alignment import AlignmentView, Hit
from foldcli.report.elements import Markup, element, section, table
from foldcli.report.result import RankedModel, Result
from foldcli.report.words import gigabytes, seconds

# columns of an alignment in one line
_WIDTH = 60


def models(result: Result) -> Markup:
    ranking = {entry.get("tag"): entry for entry in result.done.get("ranking", [])}
    rows = [_model_row(model, ranking.get(model.tag, {})) for model in result.models]
    head = ("rank", "pLDDT", "pTM", "mean PAE", "model", "recycles", "time", "files")
    more = result.models_in_all - len(result.models)
    note = (
        f"The best {len(result.models)} of {result.models_in_all} models; the files hold all." if more else ""
    )
    return section(
        "Models",
        "models",
        table(head, rows, "Choose the model to show"),
        element("p", note, class_="note") if note else "",
    )


def _model_row(model: RankedModel, told: dict[str, Any]) -> tuple[object, ...]:
    key = f"model-{model.rank}"
    chosen = element(
        "input",
        type="radio",
        name="model",
        id=key,
        value=model.rank - 1,
        checked=model.rank == 1,
        autocomplete="off",
    )
    links = [element("a", file.rpartition(".")[2].upper(), href=quote(file)) for file in model.files]
    return (
        element("label", chosen, f" {model.rank}", for_=key),
        f"{model.plddt.mean():.1f}",
        "–" if model.ptm is None else f"{model.ptm:.2f}",
        "–" if model.pae is None else f"{model.pae.mean:.1f} Å",
        model.tag,
        str(told.get("num_recycles", "–")),
        seconds(told["seconds"]) if "seconds" in told else "–",
        element("span", *links, class_="files"),
    )


def hits(view: AlignmentView | None, missing: str) -> Markup:
    if view is None or not view.hits:
        nameless = "The alignment is the query alone, or an entry of the feature cache, which keeps no names."
        note = nameless if view else missing
        return section("Hits", "hits", element("p", note, class_="note"))
    head = ("hit", "E-value", "bits", "identity", "query", "target", "alignment")
    shown = (
        f"The first {len(view.hits)} of {view.hits_in_all:,}" if view.hits_in_all > len(view.hits) else "All"
    )
    return section(
        "Hits",
        "hits",
        table(head, map(_hit_row, view.hits), f"{shown} hits, in the order of the search", id="hits-table"),
    )


def _hit_row(hit: Hit) -> tuple[object, ...]:
    def span(ends: tuple[int, int] | None) -> str:
        return f"{ends[0]}–{ends[1]}" if ends else "–"

    alignment: object = "not a row of the alignment: filtered out, or the repeat of another"
    if hit.aligned is not None:
        summary = element("summary", "show", aria_label=f"Alignment with {hit.name}")
        lines = _alignment_lines(hit.aligned, hit.query, hit.target)
        alignment = element("details", summary, element("pre", lines))
    return (
        hit.name, hit.evalue or "–", hit.bits or "–", f"{100 * hit.identity:.0f} %",
        span(hit.query), span(hit.target), alignment,
    )  # fmt: skip


def _alignment_lines(
    aligned: tuple[str, str], query: Sequence[int] | None, target: Sequence[int] | None
) -> str:
    """Query, identities and target in lines of _WIDTH columns, with the positions that they begin with."""
    above, below = aligned
    i, j = query[0] if query else 1, target[0] if target else 1
    lines = []
    for start in range(0, len(above), _WIDTH):
        a, b = above[start : start + _WIDTH], below[start : start + _WIDTH]
        same = "".join("|" if x == y != "-" else " " for x, y in zip(a, b, strict=True))
        lines += [
            f"query  {i:>5} {a}",
            f"{'':12} {same}",
            f"target {j:>5} {b}" if target else f"target {'':5} {b}",
            "",
        ]
        i, j = i + len(a) - a.count("-"), j + len(b) - b.count("-")
    return "\n".join(lines[:-1])


def made(result: Result) -> Markup:
    done = result.done
    if not done:
        return section(
            "How it was made",
            "made",
            element("p", "This folder has no record of settings and times.", class_="note"),
        )
    stages = [
        (stage["stage"], seconds(stage["seconds"]), gigabytes(stage["peak_memory_bytes"]))
        for stage in done.get("stages", [])
    ]
    settings = _flat(
        {key: value for key, value in done.get("settings", {}).items() if key not in ("query", "header")}
    )
    told = done.get("facts", {})
    hits = {"hits": told["search"].get("hits")} if isinstance(told.get("search"), dict) else {}
    # the page may be sent to others, whom the folders of this machine do not concern
    file = {"alignment": PurePath(told["alignment"]).name} if "alignment" in told else {}
    shown = hits | {key: value for key, value in told.items() if key != "search"} | file
    facts = [(key.replace("_", " "), str(value)) for key, value in shown.items()]
    boxes = [
        table(("stage", "time", "most memory"), stages, "Time and memory of each stage") if stages else "",
        table((), list(done.get("versions", {}).items()), "Versions"),
        table((), facts, "What was found") if facts else "",
    ]
    folded = element("details", element("summary", "All settings"), table((), settings, "Settings"))
    return section("How it was made", "made", element("div", *boxes, class_="boxes"), folded)


def _flat(value: Any, before: str = "") -> list[tuple[str, str]]:
    """(path, value) of all that a JSON value holds."""
    if isinstance(value, dict):
        return [
            pair
            for key, inner in value.items()
            for pair in _flat(inner, f"{before}.{key}" if before else key)
        ]
    if isinstance(value, list):
        return [pair for i, inner in enumerate(value, 1) for pair in _flat(inner, f"{before}.{i}")]
    return [(before, "none" if value is None else str(value))]
