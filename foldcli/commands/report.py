"""`foldcli report`: regenerate pages and plots of existing results."""

from pathlib import Path

import click

from foldcli.options import common as options


@click.command("report")
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="OUT...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@options.report_options
@options.logging_options
def command(folders: tuple[Path, ...], no_report: bool, no_plots: bool) -> None:
    """Regenerate the reports of finished targets.

    OUT is a folder of results of `fold` or `predict`, the folder of one target, or a folder of ColabFold's
    results. Writes NAME.html and plots next to the structures of each target, and index.html if the folder
    has several targets. Nothing is predicted again.
    """
    from foldcli.errors import SomeTargetsFailed, describe
    from foldcli.logs import logger
    from foldcli.report import ReportSettings
    from foldcli.report.make import make_report, try_index
    from foldcli.report.result import finished_targets, read_done
    from msa.errors import InputError

    settings = ReportSettings(page=not no_report, plots=not no_plots)
    if not (settings.page or settings.plots):
        raise click.UsageError("--no-report and --no-plots together leave nothing to write")
    failed = total = 0
    for out in folders:
        targets = finished_targets(out)
        if not targets:
            raise InputError("no finished target here: no NAME_scores_rank_*.json", out)
        for files in targets:
            total += 1
            try:
                written = make_report(files, read_done(files), settings)
                logger.info("%s: %s", files.name, ", ".join(map(str, written)))
            except (InputError, OSError) as error:
                failed += 1
                logger.error("%s: %s", files.name, describe(error))
        try_index(out, settings)
    if failed:
        raise SomeTargetsFailed(f"{failed} of {total} reports could not be made")
