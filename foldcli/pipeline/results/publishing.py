"""The publication of a target, in a worker process: ranking, published files, report and done.json."""

import shutil
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from foldcli.logs import logger
from foldcli.outputs.done import DoneRecord, FinishedTarget, StageCost, write_archive
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import FileKind, TargetFiles
from foldcli.outputs.model_files import (
    ModelResult,
    link_file,
    publish_models,
    rank_models,
    read_staged_results,
    relaxed_path,
)
from foldcli.outputs.network_note import plddt_warning
from foldcli.outputs.target import measured_stage
from foldcli.outputs.viewer_scripts import write_viewer_scripts
from foldcli.pipeline.search.stores import SEARCH_FILES
from foldcli.pipeline.targets.layouts import layout_of
from foldcli.report import ReportSettings
from msa.base.atomic import remove_temporary_files
from msa.base.digests import file_sha256

# files made from the models, which no longer match once models are replaced
_DERIVED_FILES: tuple[FileKind, ...] = (
    "finished_mark", "archive", "report", "coverage", "plddt", "pae", "thumbnail", "comparison",
    "chimerax", "pymol",
    "similar", "similar_structure",
)  # fmt: skip


@dataclass(frozen=True)
class FinishTask:
    """A target whose models are all staged."""

    files: TargetFiles
    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
    models: dict[str, str]
    costs: list[StageCost]
    warnings: list[str]
    facts: Facts
    report: ReportSettings
    archive: bool

    def rank(self) -> list[ModelResult]:
        """Return the results of the staged models, best first.

        Raises:
            OSError: the files of a model are missing.
        """
        folder = self.files.staging_folder
        staged = read_staged_results(folder)
        results = [
            result if relaxed_path(folder, result.tag).is_file() else replace(result, relaxation=None)
            for result in staged
            if self.models.get(result.tag) == result.fingerprint
        ]
        if missing := self.models.keys() - {result.tag for result in results}:
            raise FileNotFoundError(f"{folder}: the files of {min(missing)} are gone")
        # in the order of the jobs, which decides ties
        order = list(self.models)
        return rank_models(sorted(results, key=lambda result: order.index(result.tag)), self.rank_by)


def finish_target(task: FinishTask) -> DoneRecord:
    """Rank and publish the staged files of a target, make its report, and write done.json.

    Can be repeated after an interruption, because the staged files are removed last.

    Raises:
        OSError: a file is missing, or cannot be written.
    """
    from foldcli.report.make import try_report  # jinja2

    files, ranked = task.files, task.rank()
    unpublish(files)
    publish_models(ranked, files)
    kinds: tuple[FileKind, ...] = (*SEARCH_FILES, "templates")
    for kind in kinds:
        if files.staged_path(kind).is_file():
            link_file(files.staged_path(kind), files.path(kind))
    _remove_outdated_inputs(files, task.facts)
    warnings = _result_warnings(ranked, task.facts)
    for result_warning in warnings:
        logger.warning("%s: %s", files.name, result_warning)
    facts = task.facts
    if task.settings.get("predict", {}).keys() & {"msa_mask", "msa_cluster", "dropout"} and len(ranked) > 1:
        from foldcli.comparison.states import group_models  # imports gemmi, which most targets do not need

        facts = msgspec.structs.replace(facts, states=group_models(files, ranked))
    record = DoneRecord(
        files.name,
        task.fingerprint,
        task.settings,
        task.rank_by,
        ranked,
        task.costs,
        [*task.warnings, *warnings],
        facts,
    )
    with measured_stage("report") as costs:
        # the structures are kept even without a report; a system error fails the target until the next run
        if warning := try_report(files, record.as_json(), task.report):
            record.warnings.append(warning)
    record.costs.extend(costs)
    write_viewer_scripts(files, ranked)
    layout_of(files.layout).finish_target(files, ranked)
    if task.archive:
        write_archive(files, record.text())
    record.write(files.path("done"))
    shutil.rmtree(files.work_folder, ignore_errors=True)
    return record


def _result_warnings(ranked: list[ModelResult], facts: Facts) -> list[str]:
    """Return the limitations that only the ranked models of a target show."""
    warnings = [plddt_warning(facts.expected_lddt, ranked[0].plddt)]
    for result in ranked:
        if worse := (result.relaxation or {}).get("worse"):
            warnings.append(
                f"{result.tag}: worse after relaxation: {', '.join(worse)}; both structures are kept"
            )
    return [warning for warning in warnings if warning is not None]


def unpublish(files: TargetFiles) -> None:
    """Move done.json into the work folder; call this before replacing files.

    NAME.done.txt, NAME.result.zip, the page, the plots and the comparison are removed.
    """
    if (done := files.path("done")).is_file():
        files.work_folder.mkdir(parents=True, exist_ok=True)
        done.replace(files.replaced_record)
    for kind in _DERIVED_FILES:
        files.path(kind).unlink(missing_ok=True)


def _remove_outdated_inputs(files: TargetFiles, facts: Facts) -> None:
    """Remove published templates, alignments and hits of an earlier run that are not inputs of this one."""
    if facts.templates is None:
        files.path("templates").unlink(missing_ok=True)
    if facts.search is not None or facts.alignment == str(files.path("alignment").resolve()):
        return
    try:
        earlier = FinishedTarget.read(files.replaced_record)
    except (OSError, ValueError):
        return
    hashes = {} if earlier is None or earlier.facts.search is None else earlier.facts.search.sha256
    for kind in SEARCH_FILES:
        path = files.path(kind)
        # files with other content belong to the user
        if not files.staged_path(kind).is_file() and path.is_file() and file_sha256(path) == hashes.get(kind):
            path.unlink()


def remove_leftovers(files: TargetFiles) -> None:
    """Remove temporary files that a killed run left; the caller holds the target's lock."""
    for folder in (files.folder, files.work_folder, files.staging_folder, files.search_folder):
        remove_temporary_files(folder)
    for prefix in files.shared_prefixes():
        remove_temporary_files(files.structures_folder, prefix)


def has_leftovers(files: TargetFiles) -> bool:
    """Return True if a run works on a target, or was killed before it removed its lock and other files."""
    return any(files.folder.glob(".*"))


def load_libraries(report: ReportSettings) -> None:
    """Load the libraries of a worker when it starts, before its first call."""
    # importing this module has loaded the others
    import foldcli.report.make

    if report.plots:
        # imports matplotlib, which runs without plots do not need
        import foldcli.report.plots  # noqa: F401
