"""The list of checks, and their execution in a child process.

If a check crashes or hangs, only the child process is lost. The parent reports the check as broken, and
starts another child for the remaining ones.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import IO

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus, describe_briefly
from foldcli.doctor.system_checks import (
    all_atom_libraries,
    check_all_atom_library,
    check_package,
    check_python,
    install_command,
    package_ranges,
)
from foldcli.process_state import set_triton_cache_folder
from msa.base.services.service import Service, ServiceEnded, signal_name

# Checks by name, in the order of the report. A check's module is imported only when the check runs, because
# the import itself fails if a library is broken.
_CHECKS = {
    "cuda namespace": "system_checks.check_namespace",
    "machine": "system_checks.check_machine",
    "cache folder": "system_checks.check_cache",
    "temporary files": "system_checks.check_temporary",
    "parameters": "parameter_checks.check_parameters",
    "all-atom parameters": "parameter_checks.check_all_atom_parameters",
    "search on the CPU": "search_checks.check_cpu_search",
    "network on the CPU": "network_checks.check_cpu_network",
    "GPU": "system_checks.check_gpus",
    "GPU for the network": "network_checks.check_network_gpu",
    "search on the GPU": "search_checks.check_gpu_search",
    "network on the GPU": "network_checks.check_gpu_network",
}


def check_names() -> list[str]:
    """Return the names of all checks: Python, each package, and the rest."""
    return ["Python", *package_ranges(), *all_atom_libraries(), *_CHECKS]


def run_check(name: str, context: CheckContext) -> list[CheckResult]:
    """Run one check in this process; return no result if there is nothing to check."""
    if name == "Python":
        return [check_python()]
    if name in all_atom_libraries():
        return [check_all_atom_library(name)]
    if name not in _CHECKS:
        return [check_package(name)]
    module, _, function = _CHECKS[name].partition(".")
    check: Callable[[CheckContext], CheckResult | list[CheckResult]] = getattr(
        import_module(f"foldcli.doctor.{module}"), function
    )
    result = check(context)
    return result if isinstance(result, list) else [result]


def remedy_for(name: str) -> str:
    """Return instructions for a check that did not complete."""
    if name in (*package_ranges(), *all_atom_libraries()):
        return install_command(name)
    return "Fix the other problems first; if this one persists, report it with the whole output."


def run_checks(
    names: Sequence[str], context: CheckContext, time_limit: float, on_start: Callable[[str], None]
) -> Iterator[CheckResult]:
    """Run checks in child processes, and yield each result as soon as it is known.

    Args:
        names: names of the checks; see `check_names`.
        context: options that the checks depend on.
        time_limit: time that one check may take, in seconds.
        on_start: called with the name of each check as it starts.
    """
    remaining = list(names)
    while remaining:
        yield from _run_in_one_child(remaining, context, time_limit, on_start)


def _run_in_one_child(
    remaining: list[str], context: CheckContext, time_limit: float, on_start: Callable[[str], None]
) -> Iterator[CheckResult]:
    """Run checks until all are done or the child process ends; remove the completed ones from the list."""
    with tempfile.TemporaryFile() as output:
        service = Service(f"{__name__}:CheckHandler", context, output=output)
        # until the child reports the start of a check, the first one is taken to run
        current, reason = remaining[0], ""
        steps = service.stream("run", remaining)
        try:
            while remaining:
                name, result = steps.next(time_limit)
                if result is None:
                    current = name
                    on_start(current)
                    continue
                remaining.remove(name)
                yield from result
        except TimeoutError:
            reason = f"no answer for {time_limit:.0f} s"
        except ServiceEnded as error:
            reason = _exit_reason(error.exit_code, output)
        finally:
            service.kill()
    if reason:
        name = current if current in remaining else remaining[0]
        remaining.remove(name)
        yield CheckResult(name, CheckStatus.BROKEN, reason, remedy_for(name))


def _exit_reason(code: int, output: IO[bytes]) -> str:
    """Return how a child process ended, with the last line of its output."""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    last_line = f": {lines[-1]}" if lines else ""
    reason = f"ended by {signal_name(-code)}" if code < 0 else f"ended with exit status {code}"
    return reason + last_line


class CheckHandler:
    """Checks in this process, a child.

    Args:
        report: not used.
    """

    def __init__(self, report: Callable[..., None], context: CheckContext) -> None:
        self._context = context
        set_triton_cache_folder()

    def run(self, names: list[str]) -> Iterator[tuple[str, list[CheckResult] | None]]:
        """Run checks; yield each name with None when the check begins, and with its results when it ends."""
        for name in names:
            yield name, None
            yield name, _run_check_safely(name, self._context)


def _run_check_safely(name: str, context: CheckContext) -> list[CheckResult]:
    try:
        return run_check(name, context)
    except BaseException as error:  # anything that a package's import or a driver raises, even SystemExit
        return [CheckResult(name, CheckStatus.BROKEN, describe_briefly(error), remedy_for(name))]
