"""The HTML page of one target."""

import re
import statistics
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from foldcli.outputs.done import facts_of
from foldcli.report.data.alignment import AlignmentSummary, HitRow
from foldcli.report.data.comparison import reference_text
from foldcli.report.data.file_rows import file_type
from foldcli.report.data.interfaces import MAX_CONTACTS, MAX_INTERFACES, SCORE_COLUMNS
from foldcli.report.data.page_data import (
    CONFIDENCE_CLASSES,
    confidence_class,
    pae_values,
    page_data,
    superpositions,
)
from foldcli.report.data.related_structures import MAX_TEMPLATE_ROWS, read_template_rows
from foldcli.report.data.result import RankedModel, TargetResult
from foldcli.report.rendering import render_page
from foldcli.units import format_bytes, format_duration

SCRIPTS = (
    "state.js", "atoms.js", "plot.js", "drawing.js", "tube.js", "viewer.js", "cartoon.js", "structure.js",
    "pae.js", "plddt.js", "coverage.js", "page.js", "tables.js",
)  # fmt: skip
# alignment columns per line
_LINE_WIDTH = 60
_TAG = re.compile(r"(?P<network>.+)_seed_(?P<seed>\d+)")
# stages and facts of done.json in plain words
_STAGE_NAMES = {
    "search": "search of the database",
    "features": "preparation of the network's input",
    "templates": "search for templates",
    "predict": "prediction by the network",
    "copy": "copy of a template",
    "relax": "relaxation",
    "report": "this report",
}
_FACT_NAMES = {
    "residues": "residues",
    "alignment_rows": "sequences in the alignment",
    "feature_cache_hit": "network's input taken from the cache",
    "waited_for_features_seconds": "time for which the network waited for its input",
    "device": "device",
    "peak_gpu_memory_bytes": "most GPU memory used",
    "alignment": "alignment file",
}


def target_page(
    result: TargetResult, alignment: AlignmentSummary | None, missing: str, shared: dict[str, Any]
) -> str:
    """Return the HTML of one target.

    Args:
        result: see TargetResult.
        alignment: its alignment, or None.
        missing: the reason if there is no alignment, else "".
        shared: see `page_values`.
    """
    best, done = result.models[0], result.done
    data = page_data(result, alignment.coverage if alignment else None)
    data["reference"] = reference_text(shared["comparison"], superpositions([best.atoms.atom("CA")])[0])
    header = done.get("settings", {}).get("header")
    return render_page(
        "target.html",
        SCRIPTS,
        **shared,
        header=header if header != result.name else None,
        length=len(result.sequence),
        num_chains=len(result.chains),
        tiles=_tiles(result, alignment),
        copied_from=result.copied_from,
        network_note=facts_of(done).network_note,
        confidence=result.confidence,
        warnings=[warning for warning in done.get("warnings", []) if "UNTRAINED" not in warning],
        models=_model_rows(result),
        model_columns=_model_columns(result),
        shares=_confidence_shares(best),
        plddt_label=(
            f"{result.confidence} along the chain; best model: median {statistics.median(best.plddt):.1f}, "
            f"lowest {best.plddt.min():.1f} at residue {_residue_label(result, int(best.plddt.argmin()))}"
        ),
        pae=None if best.pae is None else pae_values(best.pae),
        sequence=result.sequence,
        secondary=data["models"][0]["secondary"],
        no_alignment=missing,
        **_alignment_values(alignment),
        **_template_values(result),
        **_interface_values(best),
        **_record_values(done),
        data=data,
    )


def _record_values(done: dict[str, Any]) -> dict[str, Any]:
    """Return the template's values about how the target was made, from the content of its done.json."""
    settings = done.get("settings", {})
    return {
        "has_record": bool(done),
        "stages": [
            (
                _STAGE_NAMES.get(stage["stage"], stage["stage"]),
                format_duration(stage["seconds"]),
                format_bytes(stage["peak_memory_bytes"]),
            )
            for stage in done.get("stages", [])
        ],
        "versions": list(done.get("versions", {}).items()),
        "facts": _fact_rows(done.get("facts", {})),
        "settings": _flatten({key: settings[key] for key in settings if key not in ("query", "header")}),
    }


def _tiles(result: TargetResult, alignment: AlignmentSummary | None) -> list[tuple[str, str]]:
    """Return the most important facts as (name, value)."""
    best = result.models[0]
    # identical rows count once in the recorded depth, which is therefore preferred
    depth = facts_of(result.done).alignment_rows or (alignment.coverage.depth if alignment else None)
    tiles = [("residues", f"{len(result.sequence):,}")]
    if len(result.chains) > 1:
        tiles.append(("chains", f"{len(result.chains):,}"))
    if depth is not None:
        tiles.append(("sequences in the alignment", f"{depth:,}"))
    if result.copied_from is None:
        tiles.append(("mean pLDDT, best model", f"{best.plddt.mean():.1f}"))
    else:
        tiles.append(("mean expected lDDT", f"{best.plddt.mean():.1f}"))
    if best.ptm is not None:
        tiles.append(("pTM, best model", f"{best.ptm:.2f}"))
    if best.iptm is not None:
        tiles.append(("ipTM, best model", f"{best.iptm:.2f}"))
    if stages := result.done.get("stages"):
        tiles.append(("total time", format_duration(sum(stage["seconds"] for stage in stages))))
    return tiles


def _confidence_shares(model: RankedModel) -> list[int]:
    """Return the percentage of residues in each of CONFIDENCE_CLASSES."""
    classes = [confidence_class(value) for value in model.plddt]
    return [round(100 * classes.count(i) / len(classes)) for i in range(len(CONFIDENCE_CLASSES))]


def _model_rows(result: TargetResult) -> list[dict[str, Any]]:
    records = {entry.get("tag"): entry for entry in result.done.get("ranking", [])}
    rows = []
    for model in result.models:
        record = records.get(model.tag, {})
        rows.append(
            {
                "rank": model.rank,
                "plddt": f"{model.plddt.mean():.1f}",
                "ptm": "–" if model.ptm is None else f"{model.ptm:.2f}",
                "iptm": "–" if model.iptm is None else f"{model.iptm:.2f}",
                "pae": "–" if model.pae is None else f"{model.pae.mean:.1f} Å",
                "made_by": _describe_tag(model.tag),
                "recycles": record.get("num_recycles", "–"),
                "time": format_duration(record["seconds"]) if "seconds" in record else "–",
                "links": [(file_type(file), quote(file)) for file in model.files],
            }
        )
    return rows


def _model_columns(result: TargetResult) -> tuple[str, ...]:
    iptm = ("ipTM",) if len(result.chains) > 1 else ()
    return ("rank", result.confidence, "pTM", *iptm, "mean PAE", "made by", "recycles", "time", "files")


def _describe_tag(tag: str) -> str:
    """Return the network and seed of a model; tags without a seed are returned unchanged."""
    match = _TAG.fullmatch(tag)
    return f"{match['network']}, seed {int(match['seed'])}" if match else tag


def _alignment_values(alignment: AlignmentSummary | None) -> dict[str, Any]:
    """Return the template's values about the alignment and its hits."""
    if alignment is None:
        return {"coverage_label": "", "hits": [], "hits_caption": ""}
    coverage = alignment.coverage
    listed = "All"
    if alignment.hit_count > len(alignment.hits):
        listed = f"The first {len(alignment.hits)} of {alignment.hit_count:,}"
    return {
        "coverage_label": (
            f"{coverage.depth:,} rows; between {coverage.covered.min():,} and {coverage.covered.max():,} of "
            "them have a residue at each position of the query"
        ),
        "hits": [_hit_values(hit) for hit in alignment.hits],
        "hits_caption": f"{listed} hits, best first",
    }


def _hit_values(hit: HitRow) -> dict[str, Any]:
    def format_span(span: tuple[int, int] | None) -> str:
        return f"{span[0]}–{span[1]}" if span else "–"

    return {
        "name": hit.name,
        "evalue": hit.evalue or "–",
        "bits": hit.bits or "–",
        "identity": f"{100 * hit.identity:.0f} %",
        "query_span": format_span(hit.query_span),
        "target_span": format_span(hit.target_span),
        "lines": None
        if hit.aligned is None
        else _alignment_lines(hit.aligned, hit.query_span, hit.target_span),
    }


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


def _template_values(result: TargetResult) -> dict[str, Any]:
    """Return the template's values about structural templates."""
    rows = read_template_rows(result.files.path("templates"), len(result.sequence), result.chains)
    listed = "All" if len(rows) <= MAX_TEMPLATE_ROWS else f"The first {MAX_TEMPLATE_ROWS} of {len(rows)}"
    return {
        "template_rows": rows[:MAX_TEMPLATE_ROWS],
        "templates_caption": f"{listed} template candidates, templates first",
    }


def _interface_values(model: RankedModel) -> dict[str, Any]:
    """Return the template's values about the interfaces between chains of a model."""
    interfaces = model.interfaces
    keys = [key for key in SCORE_COLUMNS if any(key in interface.scores for interface in interfaces)]
    rows = [
        {
            "chains": " and ".join(interface.chains),
            "contacts": "–" if interface.contacts is None else f"{len(interface.contacts):,}",
            "pae": f"{statistics.fmean(min(contact.pae) for contact in interface.contacts):.1f} Å"
            if interface.contacts
            else "–",
            "scores": [f"{interface.scores[key]:.2f}" if key in interface.scores else "–" for key in keys],
        }
        for interface in interfaces
    ]
    contacts = sorted(
        (contact for interface in interfaces for contact in interface.contacts or ()),
        key=lambda contact: min(contact.pae),
    )
    return {
        "interfaces": rows[:MAX_INTERFACES],
        "interface_columns": ("chains", "contacts", "mean PAE", *(SCORE_COLUMNS[key] for key in keys)),
        "interfaces_caption": _caption("pairs of chains", MAX_INTERFACES, len(rows)),
        "contacts": [
            {
                "residues": " and ".join(contact.residues),
                "distance": f"{contact.distance:.1f} Å",
                "pae": f"{contact.pae[0]:.1f} and {contact.pae[1]:.1f} Å",
                "plddt": f"{contact.plddt[0]:.0f} and {contact.plddt[1]:.0f}",
            }
            for contact in contacts[:MAX_CONTACTS]
        ],
        "contacts_caption": _caption("pairs of residues, lowest PAE first", MAX_CONTACTS, len(contacts)),
    }


def _caption(rows: str, limit: int, count: int) -> str:
    """Return the caption of a table that shows at most `limit` of `count` rows."""
    return f"All {rows}" if count <= limit else f"The first {limit} of {count:,} {rows}"


def _residue_label(result: TargetResult, index: int) -> str:
    """Return the number of a residue in its chain, with the chain's name if there are several."""
    start = max(start for start in result.models[0].atoms.chain_starts if start <= index)
    name = result.chains[result.models[0].atoms.chain_starts.index(start)][0]
    return f"{name}:{index - start + 1}" if len(result.chains) > 1 else f"{index + 1}"


def _fact_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of done.json as (name, value) in plain words."""
    rows = {key: value for key, value in facts.items() if key not in ("search", "templates", "network")}
    if isinstance(facts.get("search"), dict):
        rows = {"hits": facts["search"].get("hits")} | rows
    if "alignment" in facts:
        # pages are sent to other people, and should not show folders of this machine
        rows["alignment"] = PurePath(facts["alignment"]).name
    return [(_FACT_NAMES.get(key, key.replace("_", " ")), _fact_text(key, rows[key])) for key in rows]


def _fact_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and key.endswith("_seconds"):
        return format_duration(value)
    if isinstance(value, int | float) and key.endswith("_bytes"):
        return format_bytes(value)
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
