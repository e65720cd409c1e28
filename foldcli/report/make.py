"""Reports of finished targets. A target whose report fails keeps its structures, and the run says so."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldcli.comparison.references import compare_target, find_reference, write_run_table
from foldcli.errors import describe, log_bug
from foldcli.logs import logger, warn_once
from foldcli.outputs.done import facts_of
from foldcli.outputs.layout import TargetFiles
from foldcli.report import ReportSettings
from foldcli.report.data.alignment import AlignmentSummary, read_alignment_summary
from foldcli.report.data.comparison import comparison_values
from foldcli.report.data.molecules import MoleculeResult, read_molecules
from foldcli.report.data.related_structures import similar_values
from foldcli.report.data.result import TargetResult, finished_targets, link_from_page, read_result
from foldcli.report.index import write_index
from foldcli.report.molecules_page import molecules_page
from foldcli.report.rendering import page_values
from foldcli.report.target_page import target_page
from foldcli.report.viewer import FOLDER, copy_viewer, load_viewer
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import read_json


def make_report(files: TargetFiles, done: dict[str, Any], settings: ReportSettings) -> list[Path]:
    """Write the page and plots of a target.

    Args:
        files: the target's files.
        done: content of its done.json; empty if there is none.
        settings: parts to write.

    Returns:
        The files that were written.

    Raises:
        InputError: a file of the target cannot be used; names it.
    """
    if not (settings.page or settings.plots or settings.references or settings.similar):
        return []
    result: TargetResult | MoleculeResult
    if files.has_molecules:
        result, alignment, missing = read_molecules(files, done), None, ""
    else:
        result = read_result(files, done)
        alignment, missing = _read_alignment(files, done, result.chain_sequences)
    rows, failure = _compare(result, settings.references)
    written_files = [files.path("comparison")] if rows else []
    best = result.models[0]
    model = next(iter(files.existing_structures(best.rank, best.tag)), None)
    if settings.similar is not None and model is not None:
        # imports numba, which reports without this search do not need
        from foldcli.structure_search.target import find_similar

        try:
            find_similar(files, model, settings.similar)
            written_files.append(files.path("similar"))
        except InputError as error:
            failure = failure or error
    if settings.plots:
        # matplotlib takes half a second to import; predictions draw plots while the GPU works
        from foldcli.report.plots import write_plots

        written_files += write_plots(result, alignment)
    if settings.page:
        # written last, because the page lists the files of the target
        viewer = load_viewer()
        copy = copy_viewer(viewer, viewer_folder(files))
        script = "" if copy is None else link_from_page(files, copy)
        page, similar = files.path("report"), None if model is None else similar_values(files, model)
        shared = page_values(result, viewer, script, comparison_values(rows), similar)
        with atomic_write(page) as stream:
            if isinstance(result, MoleculeResult):
                stream.write(molecules_page(result, shared))
            else:
                stream.write(target_page(result, alignment, missing, shared))
        written_files.append(page)
    if failure is not None:
        raise failure
    return written_files


def _compare(
    result: TargetResult | MoleculeResult, references: Path | None
) -> tuple[list[dict[str, Any]], InputError | None]:
    """Compare the models of a target with its reference; return the rows, or why it cannot be compared."""
    files = result.files
    path = files.path("comparison")
    try:
        if references is None:
            return (read_json(path) if path.is_file() else []), None
        path.unlink(missing_ok=True)
        reference = find_reference(references, files.name)
        if reference is None:
            logger.warning("%s: not compared: no structure of this name in %s", files.name, references)
            return [], None
        return compare_target(files, [(model.rank, model.tag) for model in result.models], reference), None
    except InputError as error:
        return [], error


def viewer_folder(files: TargetFiles) -> Path:
    """Return the folder of the viewer's script, which all targets of a run share."""
    parent = files.folder.parent
    is_in_run = files.layout != "single_folder" or (parent / FOLDER).is_dir()
    return (parent if is_in_run else files.folder) / FOLDER


def _read_alignment(
    files: TargetFiles, done: dict[str, Any], chains: Sequence[str]
) -> tuple[AlignmentSummary | None, str]:
    """Return the summary of a target's alignment; None and the reason if there is none."""
    # `predict` does not copy its alignment, and records the path
    path, recorded_path = files.path("alignment"), facts_of(done).alignment
    if not path.is_file() and recorded_path:
        path = Path(recorded_path)
    if not path.is_file():
        return None, "The alignment is not shown, because its file is not next to the structures."
    m8 = files.path("hits")
    try:
        return read_alignment_summary(path, m8 if m8.is_file() else None, chains), ""
    except (InputError, OSError) as error:
        logger.warning("%s: the report has no alignment: %s", files.name, describe(error))
        return None, f"The alignment cannot be shown: {describe(error)}"


def try_report(files: TargetFiles, done: dict[str, Any], settings: ReportSettings) -> str | None:
    """Write the report of a target; log a failure in making it instead of raising it.

    Returns:
        A warning for done.json if the report could not be made.

    Raises:
        OSError: a file cannot be read or written, for example because the disk is full.
    """
    try:
        make_report(files, done, settings)
    except OSError:
        raise
    except Exception as error:
        log_bug(error)
        logger.error("%s: predicted, but its report could not be made: %s", files.name, describe(error))
        return f"the report could not be made: {describe(error)}"
    return None


def make_index(out: Path, settings: ReportSettings) -> None:
    """Write or update the index of a folder, and the table of comparisons.

    Also logs why reports have no cartoon, if so: once, and not in each process that makes reports.
    """
    if settings.references is not None:
        write_run_table(out, finished_targets(out))
    if not settings.page:
        return
    if missing := load_viewer().missing:
        warn_once(f"the reports have no cartoon: {missing}")
    write_index(out)


def try_index(out: Path, settings: ReportSettings) -> None:
    """Call `make_index` after other errors; log its failure instead of raising it."""
    try:
        make_index(out, settings)
    except Exception as error:
        log_bug(error)
        logger.error("the index of %s could not be made: %s", out, describe(error))
