"""The three plots that ColabFold also draws for a target, under the same names, and a thumbnail.

Figures are drawn without pyplot, so nothing is shared between targets or with a caller's own plots.
"""

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from foldcli.outputs.layout import FileKind
from foldcli.report.alignment import AlignmentSummary, Coverage
from foldcli.report.page_data import (
    CONFIDENCE_CLASSES,
    IDENTITY_COLOURS,
    MAX_PAE,
    PAE_COLOURS,
    confidence_class,
    superpositions,
)
from foldcli.report.result import PAE_STEP, TargetResult
from msa.io.atomic import atomic_write

MAX_PLOTTED_MODELS = 10
# with more chains, their borders are thin lines
_MAX_OUTLINED_CHAINS = 10
# name and number of residues of each chain
Chains = tuple[tuple[str, int], ...]
UNTRAINED = "UNTRAINED parameters: no meaning"


def write_plots(result: TargetResult, alignment: AlignmentSummary | None) -> list[Path]:
    """Write NAME_coverage.png, NAME_plddt.png, NAME_pae.png and NAME_thumbnail.png.

    The plot of the coverage is written only if there is an alignment, and that of the PAE only if the network
    predicts it.

    Returns:
        The files that were written.
    """
    drawings: dict[FileKind, Callable[[], Figure]] = {
        "plddt": lambda: _plddt(result),
        "thumbnail": lambda: _thumbnail(result),
    }
    if alignment is not None:
        drawings["coverage"] = lambda: _coverage(alignment.coverage, result.chains)
    if any(model.pae is not None for model in result.models):
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


def _figure(width: float, height: float, dpi: int = 150, constrained: bool = True) -> Figure:
    """Return an empty figure; width and height in inches."""
    figure = Figure(
        figsize=(width, height), dpi=dpi, layout="constrained" if constrained else None, facecolor="white"
    )
    FigureCanvasAgg(figure)
    return figure


def _colormap(name: str, stops: tuple[str, ...]) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(name, stops)


def _title_pad(chains: Chains) -> float:
    """Return the space between axes and title in points, with room for the names of several chains."""
    return float(matplotlib.rcParams["axes.titlepad"]) if len(chains) == 1 else 18.0


def _stamp_untrained(figure: Figure, result: TargetResult) -> None:
    """Write a warning across a figure if the network was untrained."""
    if result.is_untrained:
        background = {"facecolor": "white", "edgecolor": "#8c1402", "linewidth": 2, "boxstyle": "round"}
        figure.text(
            0.5, 0.5, UNTRAINED, ha="center", va="center", fontsize=18, weight="bold", color="#8c1402",
            bbox=background,
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
            axes.text(1.02, middle, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9)


def _coverage(coverage: Coverage, chains: Chains) -> Figure:
    length = len(coverage.covered)
    figure = _figure(8, 5)
    axes = figure.subplots()
    colormap = _colormap("identity", IDENTITY_COLOURS)
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
    axes.set_title("Alignment coverage", pad=_title_pad(chains))
    scale = ScalarMappable(Normalize(0, 1), colormap)
    figure.colorbar(scale, ax=axes, label="Identity with the query", pad=0.02)
    return figure


def _plddt(result: TargetResult) -> Figure:
    origin = f"copied from {result.copied_from}" if result.copied_from else ""
    figure = _figure(8, 5)
    axes = figure.subplots()
    upper = 100.0
    for lower, name, colour in CONFIDENCE_CLASSES:
        axes.axhspan(lower, upper, color=colour, alpha=0.16, linewidth=0)
        axes.text(
            1.01, (lower + upper) / 2, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9
        )
        upper = lower
    plotted = result.models[:MAX_PLOTTED_MODELS]
    position = np.arange(1, len(result.sequence) + 1)
    # models differ in line style as well as in shade
    styles = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    for i, model in reversed(list(enumerate(plotted))):
        colour = str(min(0.65, 0.07 + 0.13 * i))
        axes.plot(
            position, model.plddt, color=colour, linestyle=styles[i % 5], linewidth=2.0 if i == 0 else 1.1,
            marker="." if len(position) == 1 else None, label=f"rank {model.rank}",
        )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="lower center", ncols=5, fontsize=9, framealpha=0.85)
    axes.set(
        xlim=(0.5, len(position) + 0.5),
        ylim=(0, 100),
        yticks=(0, 50, 70, 90, 100),
        xlabel="Position",
        ylabel=result.confidence,
    )
    _mark_chains(axes, result.chains)
    title = f"{result.confidence} per residue" + (f"\n{origin}" if origin else "")
    axes.set_title(title, pad=_title_pad(result.chains))
    _stamp_untrained(figure, result)
    return figure


def _pae(result: TargetResult) -> Figure:
    models = result.models[:MAX_PLOTTED_MODELS]
    ranks_and_maps = [(model.rank, model.pae) for model in models if model.pae is not None]
    columns = min(5, len(ranks_and_maps))
    rows = -(-len(ranks_and_maps) // columns)
    figure = _figure(3 * columns + 0.9, 3.3 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    length = len(result.sequence)
    scale = ScalarMappable(Normalize(0, MAX_PAE), _colormap("pae", PAE_COLOURS))
    for axes, (rank, pae) in zip(grid.flat, ranks_and_maps, strict=False):
        # the last cell may cover fewer residues than the others
        end = len(pae.cells) * pae.block + 0.5
        axes.imshow(
            pae.cells * PAE_STEP, cmap=scale.cmap, norm=scale.norm,
            extent=(0.5, end, end, 0.5), interpolation="nearest",
        )  # fmt: skip
        axes.set(
            xlim=(0.5, length + 0.5),
            ylim=(length + 0.5, 0.5),
            xlabel="Scored residue",
        )
        _mark_chains(axes, result.chains, both_axes=True)
        axes.set_title(f"rank {rank}", pad=_title_pad(result.chains))
    for axes in grid[:, 0]:
        axes.set_ylabel("Aligned residue")
    for axes in grid.flat[len(ranks_and_maps) :]:
        axes.set_visible(False)
    figure.colorbar(scale, ax=grid, label="PAE (Å)", pad=0.015)
    _stamp_untrained(figure, result)
    return figure


def _thumbnail(result: TargetResult) -> Figure:
    best = result.models[0]
    (transform,) = superpositions([best.atoms.ca])
    ca = transform.apply(best.atoms.ca)
    figure = _figure(1.28, 1.28, 100, constrained=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    pairs = np.flatnonzero(np.isfinite(ca[1:] + ca[:-1]).all(1))
    pairs = np.setdiff1d(pairs + 1, best.atoms.chain_starts) - 1
    # draw from back to front
    pairs = pairs[np.argsort(ca[pairs, 2] + ca[pairs + 1, 2])]
    segments = np.stack([ca[pairs, :2], ca[pairs + 1, :2]], 1)
    colours = [CONFIDENCE_CLASSES[confidence_class(best.plddt[i])][2] for i in pairs]
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
