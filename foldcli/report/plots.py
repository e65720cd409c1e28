"""The three plots that ColabFold also draws for a target, under the same names, and a thumbnail.

Figures are drawn without pyplot, so nothing is shared between targets or with a caller's own plots.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from foldcli.outputs.layout import FileKind
from foldcli.report.data.alignment import AlignmentSummary, Coverage
from foldcli.report.data.molecules import MoleculeResult
from foldcli.report.data.page_data import (
    CHAIN_COLOURS,
    CONFIDENCE_CLASSES,
    IDENTITY_COLOURS,
    MAX_PAE,
    PAE_COLOURS,
    confidence_class,
    superpositions,
)
from foldcli.report.data.result import PAE_STEP, TargetResult
from msa.base.atomic import atomic_write

MAX_PLOTTED_MODELS = 10
# with more chains, their borders are thin lines
_MAX_OUTLINED_CHAINS = 10
# longest chain name that is written upright to the right of a panel
_MAX_UPRIGHT = 2
# margins in inches, with room for numbers of five digits
_LEFT, _BOTTOM, _GAP = 0.85, 0.6, 0.6
# the right margin of figures with a colour scale: free space, the scale, its numbers and its label
_SCALE_MARGIN, _SCALE_GAP, _SCALE_WIDTH = 1.15, 0.3, 0.18
# the right margin of the plot of pLDDT: names of the confidence classes
_CLASSES_MARGIN = 0.95
# height of a line of a title, in points
_TITLE_LINE = 15.0
# name and number of residues of each chain
Chains = tuple[tuple[str, int], ...]
Result: TypeAlias = TargetResult | MoleculeResult
UNTRAINED = "UNTRAINED parameters: no meaning"


def write_plots(result: Result, alignment: AlignmentSummary | None) -> list[Path]:
    """Write NAME_coverage.png, NAME_plddt.png, NAME_pae.png and NAME_thumbnail.png.

    The plot of the coverage is written only if there is an alignment, and that of the PAE only if the network
    predicts it.

    Returns:
        The files that were written.
    """
    drawings: dict[FileKind, Callable[[], Figure]] = {
        "plddt": lambda: _plddt(result),
        "thumbnail": lambda: _thumbnail(
            *(_bonds(result) if isinstance(result, MoleculeResult) else _trace(result))
        ),
    }
    if alignment is not None:
        drawings["coverage"] = lambda: _coverage(alignment.coverage, result.chains)
    if any(model.pae is not None for model in result.models[:MAX_PLOTTED_MODELS]):
        drawings["pae"] = lambda: _pae(result)
    written = []
    # ignore the user's matplotlib settings: some, such as LaTeX, could make the plots fail
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for kind, draw in drawings.items():
            path = result.files.path(kind)
            with atomic_write(path, "wb") as stream:
                # without matplotlib's version in the metadata, equal numbers give equal bytes
                draw().savefig(stream, format="png", metadata={"Software": None})
            written.append(path)
    return written


def _figure(width: float, height: float, dpi: int = 150) -> Figure:
    """Return an empty figure; width and height in inches."""
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _panels(figure: Figure, right: float, top: float, rows: int = 1, columns: int = 1) -> list[Axes]:
    """Return axes of equal size, row by row.

    Matplotlib's own layouts measure all texts, which takes as long as drawing them. Here, the margins have
    room for any labels.
    """
    figure_width, figure_height = figure.get_size_inches()
    width = (figure_width - _LEFT - right - (columns - 1) * _GAP) / columns
    height = figure_height / rows - _BOTTOM - top
    panels = []
    for row in range(rows):
        bottom = (rows - 1 - row) * figure_height / rows + _BOTTOM
        for column in range(columns):
            left = _LEFT + column * (width + _GAP)
            box = left / figure_width, bottom / figure_height, width / figure_width, height / figure_height
            panels.append(figure.add_axes(box))
    return panels


def _add_scale(figure: Figure, scale: ScalarMappable, label: str, top: float) -> None:
    """Draw a colour scale in the right margin, which must be `_SCALE_MARGIN` wide."""
    width, height = figure.get_size_inches()
    left = width - _SCALE_MARGIN + _SCALE_GAP
    box = left / width, _BOTTOM / height, _SCALE_WIDTH / width, (height - _BOTTOM - top) / height
    figure.colorbar(scale, cax=figure.add_axes(box), label=label)


def _title_pad(chains: Chains) -> float:
    """Return the space between axes and title in points, with room for the names of several chains."""
    return float(matplotlib.rcParams["axes.titlepad"]) if len(chains) == 1 else 18.0


def _top_margin(chains: Chains, title: str) -> float:
    """Return the height of a title and the space around it, in inches."""
    lines = 1 + title.count("\n")
    return 0.1 + (_title_pad(chains) + lines * _TITLE_LINE) / 72


def _stamp_untrained(figure: Figure, result: Result) -> None:
    """Write a warning across a figure if the network was untrained."""
    if result.is_untrained:
        background = {"facecolor": "white", "edgecolor": "#8c1402", "linewidth": 2, "boxstyle": "round"}
        figure.text(
            0.5, 0.5, UNTRAINED, ha="center", va="center", fontsize=min(18, 3 * figure.get_figwidth()),
            weight="bold", color="#8c1402", bbox=background,
        )  # fmt: skip


def _mark_chains(axes: Axes, chains: Chains, both_axes: bool = False) -> None:
    """Draw the borders between chains, and write their names above the axes.

    With `both_axes`, mark the y axis too, with names to its right. Names that would overlap are left out.
    """
    if len(chains) == 1:
        return
    ends = np.cumsum([length for _, length in chains])
    lines = [axes.axvline, axes.axhline] if both_axes else [axes.axvline]
    outlined = len(chains) <= _MAX_OUTLINED_CHAINS
    for colour, width in (("white", 2.4), ("#1b2128", 1.0)) if outlined else (("#1b2128", 0.4),):
        for end in ends[:-1]:
            for line in lines:
                line(end + 0.5, color=colour, linewidth=width)
    last_middle, min_distance = -np.inf, ends[-1] / (15 if both_axes else 40)
    for (name, length), end in zip(chains, ends, strict=True):
        middle = end - (length - 1) / 2
        if middle - last_middle < min_distance:
            continue
        last_middle = middle
        axes.text(middle, 1.01, name, transform=axes.get_xaxis_transform(), ha="center", fontsize=9)
        if both_axes:
            # longer names would reach the next panel or the colour scale
            rotation = 0 if len(name) <= _MAX_UPRIGHT else 270
            axes.text(
                1.02, middle, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9,
                rotation=rotation,
            )  # fmt: skip


def _coverage(coverage: Coverage, chains: Chains) -> Figure:
    length = len(coverage.covered)
    title = "Alignment coverage"
    top = _top_margin(chains, title)
    figure = _figure(8, 5)
    (axes,) = _panels(figure, _SCALE_MARGIN, top)
    colormap = LinearSegmentedColormap.from_list("identity", IDENTITY_COLOURS)
    image = np.empty((*coverage.occupancy.shape, 4))
    image[...] = colormap(coverage.identity)[:, None]
    image[..., 3] = coverage.occupancy
    axes.imshow(
        image,
        aspect="auto",
        interpolation="nearest",
        origin="upper",
        extent=(0.5, length + 0.5, 0, coverage.depth),
    )
    axes.plot(np.arange(1, length + 1), coverage.covered, color="white", linewidth=3.5)
    axes.plot(np.arange(1, length + 1), coverage.covered, color="#1b2128", linewidth=1.6)
    axes.set(
        xlim=(0.5, length + 0.5),
        ylim=(0, coverage.depth),
        xlabel="Position",
        ylabel="Rows",
    )
    _mark_chains(axes, chains)
    axes.set_title(title, pad=_title_pad(chains))
    _add_scale(figure, ScalarMappable(Normalize(0, 1), colormap), "Identity with the query", top)
    return figure


def _plddt(result: Result) -> Figure:
    origin = f"copied from {result.copied_from}" if result.copied_from else ""
    title = f"{result.confidence} per {result.unit}" + (f"\n{origin}" if origin else "")
    figure = _figure(8, 5)
    (axes,) = _panels(figure, _CLASSES_MARGIN, _top_margin(result.chains, title))
    upper = 100.0
    for lower, name, colour in CONFIDENCE_CLASSES:
        axes.axhspan(lower, upper, color=colour, alpha=0.16, linewidth=0)
        axes.text(
            1.01, (lower + upper) / 2, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9
        )
        upper = lower
    position = np.arange(1, len(result.models[0].plddt) + 1)
    # models differ in line style as well as in shade
    styles = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    for i in reversed(range(min(MAX_PLOTTED_MODELS, len(result.models)))):
        model = result.models[i]
        colour = str(min(0.65, 0.07 + 0.13 * i))
        axes.plot(
            position, model.plddt, color=colour, linestyle=styles[i % 5], linewidth=2.0 if i == 0 else 1.1,
            marker="." if len(position) == 1 else None, label=f"rank {model.rank}",
        )  # fmt: skip
    if isinstance(result, MoleculeResult):
        _colour_chains(axes, result.chains, result.models[0].plddt)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="lower center", ncols=5, fontsize=9, framealpha=0.85)
    axes.set(
        xlim=(0.5, len(position) + 0.5),
        ylim=(0, 100),
        yticks=(0, 50, 70, 90, 100),
        xlabel="Position" if result.unit == "residue" else "Token",
        ylabel=result.confidence,
    )
    _mark_chains(axes, result.chains)
    axes.set_title(title, pad=_title_pad(result.chains))
    _stamp_untrained(figure, result)
    return figure


def _colour_chains(axes: Axes, chains: Chains, plddt: np.ndarray) -> None:
    """Draw the best model's pLDDT again, with the page's colour of each chain; an ion is a dot."""
    start = 0
    for index, (_, count) in enumerate(chains):
        end = start + count
        axes.plot(
            np.arange(start + 1, end + 1), plddt[start:end], color=CHAIN_COLOURS[index % len(CHAIN_COLOURS)],
            linewidth=2.4, marker="o" if count == 1 else None, markersize=4, solid_capstyle="round",
        )  # fmt: skip
        start = end


def _pae(result: Result) -> Figure:
    models = result.models[:MAX_PLOTTED_MODELS]
    ranks_and_maps = [(model.rank, model.pae) for model in models if model.pae is not None]
    columns = min(5, len(ranks_and_maps))
    rows = -(-len(ranks_and_maps) // columns)
    top = _top_margin(result.chains, "rank")
    figure = _figure(3 * columns + 1.2, 3.3 * rows)
    panels = _panels(figure, _SCALE_MARGIN, top, rows, columns)
    length = len(models[0].plddt)
    norm, colormap = Normalize(0, MAX_PAE), LinearSegmentedColormap.from_list("pae", PAE_COLOURS)
    for axes, (rank, pae) in zip(panels, ranks_and_maps, strict=False):
        # the last cell may cover fewer residues than the others
        end = len(pae.cells) * pae.block + 0.5
        axes.imshow(
            pae.cells * PAE_STEP, cmap=colormap, norm=norm,
            extent=(0.5, end, end, 0.5), interpolation="nearest",
        )  # fmt: skip
        axes.set(
            xlim=(0.5, length + 0.5),
            ylim=(length + 0.5, 0.5),
            xlabel=f"Scored {result.unit}",
        )
        _mark_chains(axes, result.chains, both_axes=True)
        axes.set_title(f"rank {rank}", pad=_title_pad(result.chains))
    for axes in panels[::columns]:
        axes.set_ylabel(f"Aligned {result.unit}")
    for axes in panels[len(ranks_and_maps) :]:
        axes.set_visible(False)
    _add_scale(figure, ScalarMappable(norm, colormap), "PAE (Å)", top)
    _stamp_untrained(figure, result)
    return figure


def _trace(result: TargetResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best model's Cα [N, 3], the pairs to join [P, 2], and the pLDDT of each pair."""
    best = result.models[0]
    ca = best.atoms.atom("CA")
    pairs = np.flatnonzero(np.isfinite(ca[1:] + ca[:-1]).all(1))
    pairs = np.setdiff1d(pairs + 1, best.atoms.chain_starts) - 1
    return ca, np.stack([pairs, pairs + 1], 1), best.plddt[pairs]


def _bonds(result: MoleculeResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best model's atoms [A, 3], the pairs to join [P, 2], and the pLDDT of each pair."""
    best, pairs = result.models[0], result.atoms.lines
    return best.positions, pairs, best.atom_plddt[pairs[:, 0]]


def _thumbnail(positions: np.ndarray, pairs: np.ndarray, plddt: np.ndarray) -> Figure:
    (transform,) = superpositions([positions])
    moved = transform.apply(positions)
    figure = _figure(1.28, 1.28, 100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    # draw from back to front
    order = np.argsort(moved[pairs, 2].sum(axis=1))
    segments = moved[pairs[order], :2]
    colours = [CONFIDENCE_CLASSES[confidence_class(value)][2] for value in plddt[order]]
    width = max(1.2, 3.2 - len(pairs) / 250)
    if len(pairs):
        axes.add_collection(
            LineCollection(list(segments), colors="#40484f", linewidths=width + 1, capstyle="round")
        )
        axes.add_collection(
            LineCollection(list(segments), colors=colours, linewidths=width, capstyle="round")
        )
        extent = float(np.abs(segments).max()) * 1.06
        axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")
    return figure
