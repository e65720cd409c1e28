"""The page of one target: everything that a reader needs in one file that opens from disk."""

from foldcli.report import panels, tables
from foldcli.report.alignment import AlignmentView
from foldcli.report.elements import Markup, asset, data_block, document, element, joined, section
from foldcli.report.payload import payload
from foldcli.report.result import Result
from foldcli.report.viewer import Viewer
from foldcli.report.words import seconds

SCRIPTS = ("state.js", "canvas.js", "structure.js", "pae.js", "curve.js", "coverage.js", "page.js")
_PUBLISHED = (
    "Jumper et al., Nature 596, 583 (2021), for the network and its confidences; "
    "Mirdita et al., Nature Methods 19, 679 (2022), for file names and plots"
)


def target_page(result: Result, view: AlignmentView | None, missing: str, viewer: Viewer) -> str:
    """The HTML of one target.

    Args:
        result: see Result.
        view: its alignment, or None.
        missing: why there is no alignment.
        viewer: what draws the structure, or why nothing does.
    """
    parts = [
        _header(result, view),
        _warnings(result),
        tables.models(result),
        element("div", panels.structure(viewer), panels.pae(result), class_="pair"),
        panels.curve(result),
        panels.coverage(view, missing),
        tables.hits(view, missing),
        tables.made(result),
        _meaning(viewer),
    ]
    data = payload(result, view.coverage if view else None)
    body = element("main", *parts, data_block(data, "data"))
    scripts = [viewer.script, _script()]
    return document(f"{result.name}: predicted structure", body, [asset("style.css")], scripts)


def _script() -> str:
    # one scope for all, so that nothing of ours meets the viewer's names
    inner = "\n".join(asset(name) for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{inner}}})();\n"


def _header(result: Result, view: AlignmentView | None) -> Markup:
    best = result.models[0]
    header = result.done.get("settings", {}).get("header")
    # rows that repeat another count once, where that is known
    depth = result.done.get("facts", {}).get("alignment_rows", view.coverage.depth if view else None)
    tiles = [("residues", f"{len(result.sequence):,}")]
    if depth is not None:
        tiles.append(("rows of the alignment", f"{depth:,}"))
    tiles.append(("mean pLDDT, best model", f"{best.plddt.mean():.1f}"))
    if best.ptm is not None:
        tiles.append(("pTM, best model", f"{best.ptm:.2f}"))
    if stages := result.done.get("stages"):
        tiles.append(("in all", seconds(sum(stage["seconds"] for stage in stages))))
    return element(
        "header",
        element("h1", result.name),
        element("p", header, class_="subtitle") if header and header != result.name else "",
        element(
            "dl", *(element("div", element("dt", a), element("dd", b)) for a, b in tiles), class_="tiles"
        ),
    )


def _warnings(result: Result) -> Markup:
    said = [warning for warning in result.done.get("warnings", []) if "UNTRAINED" not in warning]
    parts = []
    if result.untrained:
        loud = element("strong", "Untrained parameters: this is not a prediction.")
        rest = (
            " The network's parameters are random numbers of a demonstration. Coordinates, pLDDT, PAE and "
            "pTM on this page mean nothing; only the search and the alignment are real."
        )
        parts.append(element("div", loud, rest, class_="alarm", role="alert"))
    if said:
        items = element("ul", *(element("li", each) for each in said))
        parts.append(element("div", element("strong", "Warnings"), items, class_="caution", role="note"))
    return joined(parts)


def _meaning(viewer: Viewer) -> Markup:
    drawn = f" The structure is drawn by py2Dmol {viewer.version} (S. Ovchinnikov)." if viewer.script else ""
    paragraphs = (
        "pLDDT (0 to 100) is how well the network expects the surroundings of each residue to agree with an "
        "experiment. Under 50 it often marks a disordered stretch, whose coordinates are no prediction.",
        "PAE is the error expected at one residue (across) when the structures are laid upon each other at "
        "another (down). Two domains with a low error inside and a high one between them are each predicted, "
        "but not how they lie to each other.",
        "pTM (0 to 1) is the network's estimate of the TM-score of the whole chain. None of these says "
        "whether the protein is stable, what a mutation does, or what it binds.",
        f"Sources: {_PUBLISHED}.{drawn} This page holds all that it shows and asks the network for nothing; "
        "links to files work while it lies beside them.",
    )
    return section("What the numbers mean", "meaning", *(element("p", each) for each in paragraphs))
