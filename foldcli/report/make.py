"""Making the report of a finished target, in a way that never loses the target."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.errors import describe, is_bug
from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles
from msa.errors import InputError


@dataclass(frozen=True)
class ReportSettings:
    """What is made of a finished target.

    Args:
        page: NAME.html, and index.html for several targets.
        plots: NAME_coverage.png, NAME_plddt.png, NAME_pae.png and NAME_thumbnail.png.
    """

    page: bool = True
    plots: bool = True

    @classmethod
    def of(cls, options: dict[str, Any]) -> "ReportSettings":
        """From the values of `foldcli.options.common.report_options`."""
        return cls(not options["no_report"], not options["no_plots"])


def make_report(files: TargetFiles, done: dict[str, Any], chosen: ReportSettings) -> list[Path]:
    """Make the page and plots of a target from its files.

    Args:
        files: of the target.
        done: the content of its done.json; empty if there is none.
        chosen: what to make.

    Returns:
        What was written.

    Raises:
        InputError: a file of the target that cannot be used; it is named.
        OSError: a file cannot be read or written.
    """
    from foldcli.report.page import target_page
    from foldcli.report.plots import write_plots
    from foldcli.report.result import read_result
    from foldcli.report.viewer import load_viewer
    from msa.io.atomic import atomic_write

    if not (chosen.page or chosen.plots):
        return []
    result = read_result(files, done)
    view, missing = _view(files, done, len(result.sequence))
    written = []
    if chosen.page:
        viewer = load_viewer()
        if viewer.missing:
            logger.warning("%s: the report has no structure: %s", files.name, viewer.missing)
        page = files.path("report")
        with atomic_write(page) as stream:
            stream.write(target_page(result, view, missing, viewer))
        written.append(page)
    if chosen.plots:
        written += write_plots(result, view)
    return written


def _view(files: TargetFiles, done: dict[str, Any], count: int) -> tuple[Any, str]:
    """The alignment's view; None and why, where there is none."""
    from foldcli.report.alignment import view_alignment

    own, elsewhere = files.path("alignment"), done.get("facts", {}).get("alignment")
    path = own if own.is_file() or not elsewhere else Path(elsewhere)
    if not path.is_file():
        return None, "The alignment is not beside the structures, so it is not shown."
    m8 = files.path("hits")
    try:
        return view_alignment(path, m8 if m8.is_file() else None, count), ""
    except (InputError, OSError) as error:
        logger.warning("%s: the report has no alignment: %s", files.name, describe(error))
        return None, f"The alignment cannot be shown: {describe(error)}"


def try_report(files: TargetFiles, done: dict[str, Any], chosen: ReportSettings) -> str | None:
    """Make the report of a target that has just been predicted; a failure is said loudly and raises nothing.

    Returns:
        A warning for done.json where the report could not be made.
    """
    try:
        make_report(files, done, chosen)
    except Exception as error:
        if is_bug(error):
            logger.error("%s", "".join(traceback.format_exception(error)).rstrip())
        logger.error("%s: predicted, but its report could not be made: %s", files.name, describe(error))
        return f"the report could not be made: {describe(error)}"
    return None


def try_index(out: Path, chosen: ReportSettings) -> None:
    """(Re)make the index of a folder; a failure is said loudly and raises nothing."""
    from foldcli.report.index import write_index

    if not chosen.page:
        return
    try:
        write_index(out)
    except Exception as error:
        if is_bug(error):
            logger.error("%s", "".join(traceback.format_exception(error)).rstrip())
        logger.error("the index of %s could not be made: %s", out, describe(error))
