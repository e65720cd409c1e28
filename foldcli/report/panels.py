"""The interactive sections of a target's page, drawn by scripts: structure, PAE, pLDDT and coverage."""

import statistics
from collections.abc import Sequence

from foldcli.report.alignment import AlignmentSummary
from foldcli.report.markup import Markup, element, join, note, section
from foldcli.report.page_data import CONFIDENCE_CLASSES, MAX_PAE, confidence_class
from foldcli.report.result import PAE_STEP, TargetResult
from foldcli.report.viewer import Viewer

_CLASS_RANGES = ("over 90", "70 to 90", "50 to 70", "under 50")


def structure_section(viewer: Viewer) -> Markup:
    """Return the section with the structure viewer, or with the reason why there is none."""
    if viewer.missing:
        problem = element("p", f"No structure is drawn: {viewer.missing}", class_="caution", role="note")
        return section("Structure", "structure", problem)
    label = "Predicted structure, coloured by pLDDT"
    canvas = element(
        "canvas", "The structure needs JavaScript.", id="canvas", tabindex=0, role="img", aria_label=label,
        aria_describedby="structure-keys",
    )  # fmt: skip
    colour_mode = element(
        "label",
        "Colour ",
        element(
            "select",
            element("option", "pLDDT", value="confidence"),
            element("option", "position", value="position"),
            id="colour-mode",
            autocomplete="off",
        ),
    )
    buttons = [
        element("button", text, type="button", id=name, aria_label=label, title=label)
        for name, text, label in (
            ("zoom-in", "+", "Zoom in"),
            ("zoom-out", "−", "Zoom out"),
            ("spin", "Spin", "Rotate slowly"),
            ("reset", "Reset", "Reset the view"),
            ("save-svg", "SVG", "Save the view as SVG"),
        )
    ]
    container = element("div", canvas, id="canvasContainer")
    return section(
        "Structure",
        "structure",
        element("div", colour_mode, *buttons, class_="tools"),
        element("div", container, _hidden_viewer_controls(), id="viewer"),
        _confidence_legend(),
        element("output", "", id="structure-readout", class_="readout", for_="canvas"),
        element(
            "p",
            "Cα trace. Drag to rotate; click, then use the wheel, or pinch, to zoom. Keys: arrows rotate, "
            "+ and − zoom, 0 resets the view.",
            class_="keys",
            id="structure-keys",
        ),
    )


def _hidden_viewer_controls() -> Markup:
    """Return hidden controls that py2Dmol requires; the page has its own."""
    buttons = [
        element("button", id=name, type="button") for name in ("playButton", "recordButton", "speedButton")
    ]
    sliders = [
        element("input", type="range", id=name) for name in ("frameSlider", "lineWidthSlider", "orthoSlider")
    ]
    checkboxes = [
        element("input", type="checkbox", id=name)
        for name in ("rotationCheckbox", "shadowEnabledCheckbox", "colorblindCheckbox")
    ]
    selects = [element("select", id=name) for name in ("objectSelect", "colorSelect")]
    counter = element("span", id="frameCounter")
    controls = (*buttons, *sliders, *checkboxes, *selects, counter)
    return element("div", *controls, id="controlsContainer", hidden=True)


def pae_section(result: TargetResult) -> Markup:
    """Return the section with the heat map of the predicted aligned error."""
    title = "Predicted aligned error"
    pae = result.models[0].pae
    if pae is None:
        return section(title, "pae", note("The networks used do not predict it."))
    resolution = f"PAE is stored here in steps of {PAE_STEP} Å"
    if pae.block > 1:
        resolution += f"; each cell is the mean of {pae.block} × {pae.block} residues"
    keys = (
        "Point to read a value; drag to select residues. Keys: arrows move, by ten with Shift, Enter marks a "
        f"corner, Escape clears the selection. {resolution}. The JSON files have all values."
    )
    label = f"Heat map of the predicted aligned error, mean {pae.mean:.1f} Å in the best model"
    scale_label = f"Scale from 0 Å, dark blue, to {MAX_PAE} Å, white"
    return section(
        title,
        "pae",
        _canvas("pae", label, keys, "The map needs JavaScript."),
        _colour_scale("pae-scale", "0 Å", f"{MAX_PAE} Å", scale_label),
    )


def plddt_section(result: TargetResult) -> Markup:
    """Return the section with the pLDDT curve, the selection of residues and the sequence."""
    plddt = result.models[0].plddt
    label = (
        f"pLDDT along the chain; best model: median {statistics.median(plddt):.1f}, "
        f"lowest {plddt.min():.1f} at residue {int(plddt.argmin()) + 1}"
    )
    classes = [confidence_class(value) for value in plddt]
    shares = [round(100 * classes.count(i) / len(classes)) for i in range(len(CONFIDENCE_CLASSES))]
    keys = (
        "The thick line is the model shown. Point to read a value; drag to select residues. Keys: left and "
        "right move, and select with Shift, Escape clears the selection."
    )
    residues_input = element(
        "label",
        "Select residues ",
        element(
            "input",
            type="text",
            id="residues-input",
            placeholder="10-25, 40",
            autocomplete="off",
            spellcheck="false",
        ),
    )
    clear = element("button", "Clear", type="button", id="clear")
    selected = element("output", "", id="selected", for_="residues-input")
    return section(
        "pLDDT",
        "plddt",
        _confidence_legend(shares),
        _canvas("curve", label, keys, "The curve needs JavaScript."),
        element("div", residues_input, clear, selected, class_="tools"),
        element(
            "div", id="sequence", class_="sequence", role="img", aria_label=f"Sequence: {result.sequence}"
        ),
    )


def coverage_section(alignment: AlignmentSummary | None, missing: str) -> Markup:
    """Return the section with the image of the alignment, or with the reason why there is none."""
    title = "Alignment: coverage and identity"
    if alignment is None:
        return section(title, "coverage", note(missing))
    coverage = alignment.coverage
    label = (
        f"{coverage.depth:,} rows; between {coverage.covered.min():,} and {coverage.covered.max():,} of them "
        "have a residue at each position of the query"
    )
    keys = (
        "Rows are sorted by identity, the share of the query's residues that they have; gaps are left empty. "
        "The line is the number of rows that cover each position. Point to read values; keys: left and right "
        "move."
    )
    scale_label = "Scale from orange, no identical residues, to blue, all residues identical"
    return section(
        title,
        "coverage",
        _canvas("coverage", label, keys, "The picture needs JavaScript."),
        _colour_scale("identity-scale", "identity 0", "1", scale_label),
    )


def _confidence_legend(shares: Sequence[int] = ()) -> Markup:
    """Return the legend of pLDDT's colours, with the share of residues (%) in each class if given."""
    items = []
    for i, ((_, name, _), bounds) in enumerate(zip(CONFIDENCE_CLASSES, _CLASS_RANGES, strict=True)):
        swatch = element("span", class_=f"swatch class-{i}", aria_hidden="true")
        share = element("span", f" {shares[i]} %", id=f"share-{i}") if shares else ""
        items.append(element("li", swatch, f"{name} ({bounds})", share))
    label = "Colours of pLDDT" + (", and the share of residues of the model shown" if shares else "")
    return element("ul", *items, class_="legend", aria_label=label)


def _canvas(name: str, label: str, keys: str, fallback: str) -> Markup:
    """Return a canvas with a line for the value under the pointer and a description of its keys."""
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
    readout = element("output", "", id=f"{name}-readout", class_="readout", for_=f"{name}-canvas")
    return join([box, readout, element("p", keys, class_="keys", id=f"{name}-keys")])


def _colour_scale(name: str, low: str, high: str, label: str) -> Markup:
    canvas = element("canvas", id=name, width=256, height=1, role="img", aria_label=label)
    return element("div", element("span", low), canvas, element("span", high), class_="scale")
