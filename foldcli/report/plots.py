"""The three pictures that ColabFold makes of a result, under its names, and a thumbnail.

Figures are made without pyplot: nothing is shared between targets or with a caller's own plots.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.outputs.layout import FileKind
from foldcli.report import palettes
from foldcli.report.payload import lay_out
from foldcli.report.result import PAE_STEP, Result
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    from foldcli.report.alignment import AlignmentView, Coverage

# of many models the best are drawn
MOST_MAPS = 10
UNTRAINED = "UNTRAINED parameters: no meaning"


def write_plots(result: Result, view: "AlignmentView | None") -> list[Path]:
    """Write NAME_coverage.png, NAME_plddt.png, NAME_pae.png and NAME_thumbnail.png.

    Coverage needs an alignment, PAE a network with a head for it; without, the file is left as it is.

    Returns:
        What was written.
    """
    import matplotlib

    drawings: dict[FileKind, Callable[[], Figure]] = {
        "plddt": lambda: _plddt(result),
        "thumbnail": lambda: _thumbnail(result),
    }
    if view is not None:
        drawings["coverage"] = lambda: _coverage(view.coverage)
    if any(model.pae is not None for model in result.models):
        drawings["pae"] = lambda: _pae(result)
    written = []
    # a user's own settings, LaTeX for one, must not decide whether a target's plots can be made
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for kind, draw in drawings.items():
            path = result.files.path(kind)
            with atomic_write(path, "wb") as stream:
                # without the version of matplotlib, the same numbers give the same bytes
                draw().savefig(stream, format="png", metadata={"Software": None})
            written.append(path)
    return written


def _figure(width: float, height: float, dpi: int = 150, constrained: bool = True) -> "Figure":
    """An empty figure, inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(width, height), dpi=dpi, layout="constrained" if constrained else None, facecolor="white"
    )
    FigureCanvasAgg(figure)
    return figure


def _colours(name: str, stops: tuple[str, ...]) -> "LinearSegmentedColormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, stops)


def _warn(figure: "Figure", result: Result) -> None:
    if result.untrained:
        ground = {"facecolor": "white", "edgecolor": "#8c1402", "linewidth": 2, "boxstyle": "round"}
        figure.text(
            0.5, 0.5, UNTRAINED, ha="center", va="center", fontsize=18, weight="bold", color="#8c1402",
            bbox=ground,
        )  # fmt: skip


def _coverage(coverage: "Coverage") -> "Figure":
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    count = len(coverage.covered)
    figure = _figure(8, 5)
    axes = figure.subplots()
    colours = _colours("identity", palettes.IDENTITY)
    picture = np.empty((*coverage.occupancy.shape, 4))
    picture[...] = colours(coverage.identity)[:, None]
    picture[..., 3] = coverage.occupancy
    axes.imshow(
        picture,
        aspect="auto",
        interpolation="nearest",
        origin="upper",
        extent=(0.5, count + 0.5, 0, coverage.depth),
    )
    axes.plot(np.arange(1, count + 1), coverage.covered, color="white", linewidth=3.5)
    axes.plot(np.arange(1, count + 1), coverage.covered, color="#1b2128", linewidth=1.6)
    axes.set(
        xlim=(0.5, count + 0.5),
        ylim=(0, coverage.depth),
        xlabel="Position",
        ylabel="Rows",
        title="Alignment coverage",
    )
    scale = ScalarMappable(Normalize(0, 1), colours)
    figure.colorbar(scale, ax=axes, label="Identity with the query", pad=0.02)
    return figure


def _plddt(result: Result) -> "Figure":
    import numpy as np

    figure = _figure(8, 5)
    axes = figure.subplots()
    above = 100.0
    for lowest, name, colour in palettes.CONFIDENCE:
        axes.axhspan(lowest, above, color=colour, alpha=0.16, linewidth=0)
        axes.text(
            1.01, (lowest + above) / 2, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9
        )
        above = lowest
    shown = result.models[:MOST_MAPS]
    position = np.arange(1, len(result.sequence) + 1)
    # told apart by line style as well as by shade
    styles = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    for i, model in reversed(list(enumerate(shown))):
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
        ylabel="pLDDT",
        title="pLDDT per residue",
    )
    _warn(figure, result)
    return figure


def _pae(result: Result) -> "Figure":
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = [(model.rank, model.pae) for model in result.models[:MOST_MAPS] if model.pae is not None]
    across = min(5, len(shown))
    down = -(-len(shown) // across)
    figure = _figure(3 * across + 0.9, 3.3 * down)
    grid = figure.subplots(down, across, squeeze=False)
    colours = _colours("pae", palettes.PAE)
    count = len(result.sequence)
    scale = ScalarMappable(Normalize(0, palettes.PAE_HIGHEST), colours)
    for axes, (rank, pae) in zip(grid.flat, shown, strict=False):
        # the last cell may stand for fewer residues than the others
        end = len(pae.cells) * pae.block + 0.5
        axes.imshow(
            pae.cells * PAE_STEP, cmap=scale.cmap, norm=scale.norm,
            extent=(0.5, end, end, 0.5), interpolation="nearest",
        )  # fmt: skip
        axes.set(
            xlim=(0.5, count + 0.5),
            ylim=(count + 0.5, 0.5),
            title=f"rank {rank}",
            xlabel="Scored residue",
        )
    for axes in grid[:, 0]:
        axes.set_ylabel("Aligned residue")
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    figure.colorbar(scale, ax=grid, label="PAE (Å)", pad=0.015)
    _warn(figure, result)
    return figure


def _thumbnail(result: Result) -> "Figure":
    import numpy as np
    from matplotlib.collections import LineCollection

    best = result.models[0]
    (ca,) = lay_out([best.ca])
    figure = _figure(1.28, 1.28, 100, constrained=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    pairs = np.flatnonzero(np.isfinite(ca[1:] + ca[:-1]).all(1))
    # from the back to the front
    pairs = pairs[np.argsort(ca[pairs, 2] + ca[pairs + 1, 2])]
    segments = np.stack([ca[pairs, :2], ca[pairs + 1, :2]], 1)
    colours = [palettes.CONFIDENCE[palettes.confidence_class(best.plddt[i])][2] for i in pairs]
    width = max(1.2, 3.2 - len(pairs) / 250)
    if len(pairs):
        axes.add_collection(
            LineCollection(list(segments), colors="#40484f", linewidths=width + 1, capstyle="round")
        )
        axes.add_collection(
            LineCollection(list(segments), colors=colours, linewidths=width, capstyle="round")
        )
        reach = float(np.abs(segments).max()) * 1.06
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    return figure
