"""Reports and merged tables of results that exist."""

from collections.abc import Sequence
from pathlib import Path

from foldcli.errors import SomeTargetsFailed, describe
from foldcli.logs import logger
from foldcli.outputs.done import write_archive
from foldcli.outputs.merge import merge_failures, merge_summaries
from foldcli.outputs.summary import remove_run_leftovers
from foldcli.report import ReportSettings
from foldcli.report.data.result import finished_targets, read_done
from foldcli.report.make import make_index, make_report
from foldcli.units import format_count
from msa.base.errors import InputError


def make_again(folders: Sequence[Path], settings: ReportSettings, tables_only: bool) -> None:
    """Merge the tables of folders of results, and make the reports again.

    Args:
        folders: see `foldcli report`.
        settings: contents of the reports.
        tables_only: make no reports.

    Raises:
        InputError: a folder has no results.
        SomeTargetsFailed: not all reports could be made.
    """
    num_failed = num_reports = 0
    for out in folders:
        remove_run_leftovers(out)
        targets = finished_targets(out)
        if (summary := merge_summaries(out)) is not None:
            models, of_targets = format_count(summary.rows, "model"), format_count(summary.targets, "target")
            logger.info("%s: %s of %s", summary.path, models, of_targets)
        if (failures := merge_failures(out)) is not None:
            logger.warning("%s: %d failed targets", failures.path, failures.targets)
        if not targets and failures is None:
            raise InputError("no finished target here: no NAME_scores_rank_*.json", out)
        for files in [] if tables_only else targets:
            if files.lock_path.exists() or files.work_folder.exists():
                # its files may come from two different runs
                logger.warning("%s: no report, because its run has not ended or was interrupted", files.name)
                continue
            num_reports += 1
            try:
                written = make_report(files, read_done(files), settings)
                if files.path("archive").is_file():
                    write_archive(files, files.path("done").read_text())
                    written.append(files.path("archive"))
                logger.info("%s: %s", files.name, ", ".join(map(str, written)))
            except (InputError, OSError) as error:
                num_failed += 1
                logger.error("%s: %s", files.name, describe(error))
        make_index(out, settings)
    if num_failed:
        raise SomeTargetsFailed(f"{num_failed} of {num_reports} reports could not be made")
