"""The process in which checks run, so that one that takes the interpreter down is an answer as well."""

import json
import os
from pathlib import Path
from typing import Any

from foldcli.doctor.checks import remedy_for, run_check
from foldcli.doctor.outcome import Context, Outcome, Status, first_line
from foldcli.process_state import set_triton_cache_folder


def work(told: int, device: str, params: str, names: list[str]) -> None:
    """Run checks and write a JSON line as each begins, for each outcome, and as each ends.

    Args:
        told: file descriptor for the lines.
        device, params: see Context.
        names: of the checks.
    """
    context = Context(device, Path(params))
    set_triton_cache_folder()
    with os.fdopen(told, "w", buffering=1, encoding="utf-8") as stream:

        def tell(line: dict[str, Any]) -> None:
            stream.write(json.dumps(line) + "\n")

        for name in names:
            tell({"begins": name})
            for outcome in _outcomes(name, context):
                tell({"outcome": outcome.as_json()})
            tell({"ends": name})


def _outcomes(name: str, context: Context) -> list[Outcome]:
    try:
        return run_check(name, context)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a package's import or a driver raises, SystemExit too
        return [Outcome(name, Status.BROKEN, first_line(error), remedy_for(name))]
