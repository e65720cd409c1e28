"""`foldcli doctor`: check this machine."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus
from foldcli.doctor.runner import check_names, run_checks
from foldcli.errors import ExitCode
from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.params.parameters import default_folder
from foldcli.version import VERSION

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


@click.command("doctor")
@options.device_option("predictions")
@click.option(
    "--params",
    "params",
    type=click.Path(path_type=Path),
    show_default="$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params",
    help="Folder with DeepMind's params_model_*.npz.",
)
@options.flag(
    "--predict",
    help="Instead of the checks, predict small proteins of known structure with the networks that are "
    "installed, or that of --params, and compare them with experiment.",
)
@options.json_option
@options.number_option(
    "--time-limit",
    numbers=click.FloatRange(0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="Time limit of one check; the first run also compiles kernels.",
)
@options.logging_options
@click.pass_context
def command(
    context: click.Context, device: str, params: Path | None, predict: bool, as_json: bool, time_limit: float
) -> None:
    """Check what works on this machine and suggest how to fix the rest.

    Prints one line per check: its status, its finding and, if needed, a fix. The status is ok, warning
    (predictions run, but slower or with limits) or broken (predictions do not run). The exit code is 4 if
    anything is broken. Missing parameters are a warning, because `--params compact` needs none. Checks run in
    a child process; a check that crashes it is reported as broken.

    --predict answers whether this installation predicts as it should, in minutes. A network with random or
    damaged parameters is broken.
    """
    if predict:
        if "time_limit" in options.given_options(context):
            raise click.UsageError("--time-limit does not apply with --predict.")
        if _check_predictions(params, device, as_json):
            context.exit(ExitCode.MISSING)
        return
    results = []
    check_context = CheckContext(device, params or default_folder())
    for result in run_checks(
        check_names(), check_context, time_limit, lambda name: logger.debug("checking %s", name)
    ):
        results.append(result)
        if not as_json:
            _show(result)
    counts = {status.value: sum(result.status is status for result in results) for status in CheckStatus}
    if as_json:
        severity = (CheckStatus.BROKEN, CheckStatus.WARNING)
        worst = next((status.value for status in severity if counts[status]), CheckStatus.OK.value)
        report = {"foldcli": VERSION, "status": worst, "checks": [result.as_json() for result in results]}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(", ".join(f"{count} {status}" for status, count in counts.items()))
    if counts["broken"]:
        context.exit(ExitCode.MISSING)


def _show(result: CheckResult) -> None:
    status = click.style(f"{result.status:8}", fg=_COLOURS[result.status])
    click.echo(f"{status} {result.name}: {result.finding}")
    for line in result.remedy.splitlines():
        click.echo(f"{'':8} {line}")


def _check_predictions(params: Path | None, device: str, as_json: bool) -> bool:
    """Predict proteins of known structure, and print the table; return True if a network is broken."""
    from foldcli.doctor.predictions import COLUMNS, PUBLISHED, check_predictions, installed_networks

    networks = installed_networks() if params is None else [str(params)]
    checks = [check for network in networks for check in check_predictions(network, device)]
    broken = {check.network for check in checks if check.status == "broken"}
    if as_json:
        click.echo(json.dumps({"checks": [asdict(c) for c in checks], "published": PUBLISHED}, indent=2))
        return bool(broken)
    rows = [list(COLUMNS), *(check.cells() for check in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]))
    for line in PUBLISHED:
        click.echo(f"published: {line}")
    for network in networks:
        click.echo(f"{network}: predicts {'NOT ' if network in broken else ''}as it should")
    return bool(broken)
