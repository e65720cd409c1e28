"""The parts of a target's page that scripts draw in: structure, PAE, pLDDT and the alignment from afar."""

import statistics
from collections.abc import Sequence

from foldcli.report.alignment import AlignmentView
from foldcli.report.elements import Markup, element, joined, section
from foldcli.report.palettes import CONFIDENCE, confidence_class
from foldcli.report.result import PAE_STEP, Result
from foldcli.report.viewer import Viewer

_BOUNDS = ("over 90", "70 to 90", "50 to 70", "under 50")


def _confidence_legend(shares: Sequence[int] = ()) -> Markup:
    """What the colours of pLDDT mean, with the share of residues (%) in each class if it is given."""
    items = []
    for i, ((_, name, _), bounds) in enumerate(zip(CONFIDENCE, _BOUNDS, strict=True)):
        swatch = element("span", class_=f"swatch class-{i}", aria_hidden="true")
        share = element("span", f" {shares[i]} %", id=f"share-{i}") if shares else ""
        items.append(element("li", swatch, f"{name} ({bounds})", share))
    label = "Colours of pLDDT" + (", and how many residues of the model shown have it" if shares else "")
    return element("ul", *items, class_="legend", aria_label=label)


def _canvas(name: str, label: str, keys: str, fallback: str) -> Markup:
    canvas = element(
        "canvas",
        fallback,
        id=f"{name}-canvas",
        tabindex=0,
        role="img",
        aria_label=label,
        aria_describedby=f"{name}-keys",
    )
    box = element("div", canvas, class_="canvas", id=f"{name}-box")
    said = element("output", "", id=f"{name}-said", class_="said", for_=f"{name}-canvas")
    return joined([box, said, element("p", keys, class_="keys", id=f"{name}-keys")])


def _scale(name: str, low: str, high: str, label: str) -> Markup:
    picture = element("canvas", id=name, width=256, height=1, role="img", aria_label=label)
    return element("div", element("span", low), picture, element("span", high), class_="scale")


def structure(viewer: Viewer) -> Markup:
    if viewer.missing:
        problem = element("p", f"No structure is drawn: {viewer.missing}", class_="caution", role="note")
        return section("Structure", "structure", problem)
    # the viewer wants controls of these names; this page has its own, so they stay hidden
    buttons = [
        element("button", id=name, type="button") for name in ("playButton", "recordButton", "speedButton")
    ]
    sliders = [
        element("input", type="range", id=name) for name in ("frameSlider", "lineWidthSlider", "orthoSlider")
    ]
    boxes = [
        element("input", type="checkbox", id=name)
        for name in ("rotationCheckbox", "shadowEnabledCheckbox", "colorblindCheckbox")
    ]
    selects = [element("select", id=name) for name in ("objectSelect", "colorSelect")]
    unused = element(
        "div",
        *buttons,
        *sliders,
        *boxes,
        *selects,
        element("span", id="frameCounter"),
        id="controlsContainer",
        hidden=True,
    )
    label = "Predicted structure, coloured by pLDDT"
    canvas = element(
        "canvas", "The structure needs JavaScript.", id="canvas", tabindex=0, role="img", aria_label=label,
        aria_describedby="structure-keys",
    )  # fmt: skip
    colours = element(
        "label",
        "Colour ",
        element(
            "select",
            element("option", "pLDDT", value="confidence"),
            element("option", "position", value="position"),
            id="colour",
            autocomplete="off",
        ),
    )
    tools = [
        element("button", sign, type="button", id=name, aria_label=label, title=label)
        for name, sign, label in (
            ("closer", "+", "Closer"),
            ("farther", "−", "Farther"),
            ("spin", "Spin", "Turn slowly"),
            ("reset", "Reset", "Back to the first view"),
            ("picture", "SVG", "Save the view as SVG"),
        )
    ]
    drawn = element("div", element("div", canvas, id="canvasContainer"), unused, id="viewer")
    return section(
        "Structure",
        "structure",
        element("div", colours, *tools, class_="tools"),
        drawn,
        _confidence_legend(),
        element("output", "", id="structure-said", class_="said", for_="canvas"),
        element(
            "p",
            "Cα trace. Drag to turn; click and use the wheel, or pinch, to come closer. Keys: arrows turn, + "
            "and − come closer and go farther, 0 goes back.",
            class_="keys",
            id="structure-keys",
        ),
    )


def pae(result: Result) -> Markup:
    best = result.models[0].pae
    if best is None:
        return section(
            "Predicted aligned error",
            "pae",
            element("p", "These networks have no head for it.", class_="note"),
        )
    kept = f"PAE is kept here to {PAE_STEP} Å"
    kept += f", as the mean of {best.block} × {best.block} residues a cell." if best.block > 1 else "."
    keys = (
        "Point to read a value; drag to select residues. Keys: arrows move, with Shift by ten, Enter marks a "
        f"corner, Escape clears. {kept} The JSON files have all values."
    )
    label = f"Heat map of the predicted aligned error, mean {best.mean:.1f} Å in the best model"
    legend = _scale("pae-scale", "0 Å", "31.75 Å", "Scale from 0 Å, dark blue, to 31.75 Å, white")
    return section(
        "Predicted aligned error", "pae", _canvas("pae", label, keys, "The map needs JavaScript."), legend
    )


def curve(result: Result) -> Markup:
    plddt = result.models[0].plddt
    label = (
        f"pLDDT along the chain; best model: median {statistics.median(plddt):.1f}, "
        f"lowest {plddt.min():.1f} at residue {int(plddt.argmin()) + 1}"
    )
    classes = [confidence_class(value) for value in plddt]
    shares = [round(100 * classes.count(i) / len(classes)) for i in range(len(CONFIDENCE))]
    keys = (
        "The model shown is the thick line. Point to read a value; drag to select residues. Keys: left and "
        "right move, with Shift they select, Escape clears."
    )
    asked = element(
        "label",
        "Select residues ",
        element(
            "input", type="text", id="asked", placeholder="10-25, 40", autocomplete="off", spellcheck="false"
        ),
    )
    clear = element("button", "Clear", type="button", id="clear")
    return section(
        "pLDDT",
        "plddt",
        _confidence_legend(shares),
        _canvas("curve", label, keys, "The curve needs JavaScript."),
        element("div", asked, clear, element("output", "", id="selected", for_="asked"), class_="tools"),
        element(
            "div", id="sequence", class_="sequence", role="img", aria_label=f"Sequence: {result.sequence}"
        ),
    )


def coverage(view: AlignmentView | None, missing: str) -> Markup:
    title = "Alignment: coverage and identity"
    if view is None:
        return section(title, "coverage", element("p", missing, class_="note"))
    cover = view.coverage
    label = (
        f"{cover.depth:,} rows; between {cover.covered.min():,} and {cover.covered.max():,} of them have a "
        "residue at each position of the query"
    )
    keys = (
        "Rows are sorted by identity, the share of the query's residues that they have; gaps are left empty. "
        "The line is how many rows cover each position. Point to read values; keys: left and right move."
    )
    label_of_scale = "Scale from orange, none, to blue, all residues identical"
    legend = _scale("identity-scale", "identity 0", "1", label_of_scale)
    return section(
        title, "coverage", _canvas("coverage", label, keys, "The picture needs JavaScript."), legend
    )
