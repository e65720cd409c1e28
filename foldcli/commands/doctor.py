"""`foldcli doctor`: what works on this machine, what does not, and what to do."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foldcli.errors import ExitCode
from foldcli.options import common as options

if TYPE_CHECKING:
    from foldcli.doctor.outcome import Outcome

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


@click.command("doctor")
@options.device_option("predictions will run")
@click.option(
    "--params",
    "params",
    type=click.Path(path_type=Path),
    show_default="$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params",
    help="Folder with DeepMind's params_model_*.npz.",
)
@options.json_option
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds that one check may take; kernels are compiled the first time.",
)
@options.logging_options
@click.pass_context
def command(
    context: click.Context, device: str, params: Path | None, as_json: bool, time_limit: float
) -> None:
    """Check what works on this machine and suggest how to fix the rest.

    A line a check: ok, warning (predictions run, but not all or not as fast) or broken (they do not run),
    what was found, and what to do. Exit code 4 if anything is broken. Missing parameters are a warning, as
    `--params demo` needs none. Checks run in a process of their own: one that crashes is broken.
    """
    import json

    from foldcli.doctor.checks import names_of_checks
    from foldcli.doctor.outcome import Context, Status
    from foldcli.doctor.runner import run_checks
    from foldcli.logs import logger
    from foldcli.params.parameters import default_folder
    from foldcli.version import VERSION

    outcomes = []
    asked = Context(device, params or default_folder())
    for outcome in run_checks(
        names_of_checks(), asked, time_limit, lambda name: logger.debug("checking %s", name)
    ):
        outcomes.append(outcome)
        if not as_json:
            _show(outcome)
    counts = {status.value: sum(o.status is status for o in outcomes) for status in Status}
    if as_json:
        worst = next((s.value for s in (Status.BROKEN, Status.WARNING) if counts[s]), Status.OK.value)
        report = {"foldcli": VERSION, "status": worst, "checks": [outcome.as_json() for outcome in outcomes]}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(", ".join(f"{count} {status}" for status, count in counts.items()))
    if counts["broken"]:
        context.exit(ExitCode.MISSING)


def _show(outcome: "Outcome") -> None:
    mark = click.style(f"{outcome.status:8}", fg=_COLOURS[outcome.status])
    click.echo(f"{mark} {outcome.name}: {outcome.found}")
    for line in outcome.remedy.splitlines():
        click.echo(f"{'':8} {line}")
