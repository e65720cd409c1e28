"""`foldcli report`: regenerate pages and plots of existing results, and merge the tables of array jobs."""

from pathlib import Path

import click

from foldcli.options import common as options
from foldcli.report import ReportSettings


@click.command("report")
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="OUT...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@options.report_options
@options.flag(
    "--tables-only",
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
    from foldcli.report.again import make_again

    settings = ReportSettings(not no_report, not no_plots, references, similar)
    if not (settings.page or settings.plots):
        raise click.UsageError("--no-report and --no-plots together leave nothing to write")
    if tables_only and (settings.references or settings.similar):
        raise click.UsageError("--reference and --find-similar do not apply with --tables-only")
    make_again(folders, settings, tables_only)
