"""`foldcli report`: regenerate pages and plots of existing results, and merge the tables of array jobs."""

from pathlib import Path

import click

from foldcli.errors import SomeTargetsFailed, describe
from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.outputs.done import write_archive
from foldcli.report import ReportSettings
from msa.base.errors import InputError


@click.command("report")
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="OUT...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@options.report_options
@click.option(
    "--tables-only",
    is_flag=True,
    help="Write only summary.tsv, failures.jsonl and index.html, not the pages and plots of targets.",
)
@options.logging_options
def command(
    folders: tuple[Path, ...],
    references: Path | None,
    similar: Path | None,
    no_report: bool,
    no_plots: bool,
    tables_only: bool,
) -> None:
    """Regenerate the reports of finished targets, and merge the tables of array jobs.

    OUT is a folder of results of `fold` or `predict`, the folder of one target, or a folder of ColabFold's
    results. Writes NAME.html and plots next to the structures of each target, and index.html if the folder
    has several targets. Archives of targets (--zip) are written again too. Nothing is predicted again.

    For the folder of a run, also merges the tables of all array jobs: summary.tsv lists the models of all
    finished targets, and failures.jsonl the targets that have failed and were not finished later.

    \b
    Examples:
      foldcli report out
      foldcli report out --tables-only
    """
    from foldcli.outputs.merge import merge_failures, merge_summaries
    from foldcli.outputs.summary import remove_run_leftovers
    from foldcli.report.data.result import finished_targets, read_done
    from foldcli.report.make import make_index, make_report

    settings = ReportSettings(not no_report, not no_plots, references, similar)
    if not (settings.page or settings.plots):
        raise click.UsageError("--no-report and --no-plots together leave nothing to write")
    num_failed = num_reports = 0
    for out in folders:
        remove_run_leftovers(out)
        targets = finished_targets(out)
        if (summary := merge_summaries(out)) is not None:
            logger.info("%s: %d models of %d targets", summary.path, summary.rows, summary.targets)
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
