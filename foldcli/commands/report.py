"""`foldcli report`: pages and plots of results that are already there."""

from pathlib import Path
from typing import Any

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
def command(folders: tuple[Path, ...], **settings: Any) -> None:
    """Remake the reports of finished targets.

    OUT is a folder of results of `fold` or `predict`, the folder of one target, or a folder of ColabFold's
    results. Each target gets NAME.html and its plots beside its structures, a folder of several index.html.
    Nothing is predicted anew.
    """
    from foldcli.errors import SomeTargetsFailed, describe
    from foldcli.logs import logger
    from foldcli.report.find import finished_targets, read_done
    from foldcli.report.make import ReportSettings, make_report, try_index
    from msa.errors import InputError

    chosen = ReportSettings.of(settings)
    if not (chosen.page or chosen.plots):
        raise click.UsageError("--no-report and --no-plots together leave nothing to make")
    failed = tried = 0
    for out in folders:
        targets = finished_targets(out)
        if not targets:
            raise InputError("no finished target here: no NAME_scores_rank_*.json", out)
        for files in targets:
            tried += 1
            try:
                written = make_report(files, read_done(files), chosen)
                logger.info("%s: %s", files.name, ", ".join(map(str, written)))
            except (InputError, OSError) as error:
                failed += 1
                logger.error("%s: %s", files.name, describe(error))
        try_index(out, chosen)
    if failed:
        raise SomeTargetsFailed(f"{failed} of {tried} reports could not be made")
