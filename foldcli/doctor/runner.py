"""The list of checks, and their execution in a child process.

If a check crashes or hangs, only the child process is lost. The parent reports the check as broken, and
starts another child for the remaining ones.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

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
from msa.base.child_process import main_command

_EXIT_SECONDS = 5

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
    with tempfile.TemporaryFile() as output, _child_process(remaining, context, output) as (process, stream):
        # until the child reports the start of a check, the first one is taken to run
        current = remaining[0]
        try:
            for message in _messages(stream, time_limit):
                if "begins" in message:
                    current = message["begins"]
                    on_start(current)
                elif "ends" in message:
                    remaining.remove(message["ends"])
                else:
                    yield CheckResult.from_json(message["result"])
            reason = _exit_reason(process, output)
        except TimeoutError:
            reason = f"no answer for {time_limit:.0f} s"
    if remaining:
        name = current if current in remaining else remaining[0]
        remaining.remove(name)
        yield CheckResult(name, CheckStatus.BROKEN, reason, remedy_for(name))


@contextlib.contextmanager
def _child_process(
    names: list[str], context: CheckContext, output: IO[bytes]
) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    """Start a child process with this process's import path; yield it and the stream of its messages.

    Its standard output and error go to the file `output`.
    """
    read_end, write_end = os.pipe()
    arguments = json.dumps([write_end, context.device, str(context.params), names])
    with os.fdopen(read_end, "rb", buffering=0) as stream:
        try:
            process = subprocess.Popen(
                [*main_command(__name__), arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[write_end],
            )
        finally:
            os.close(write_end)
        try:
            yield process, stream
        finally:
            process.kill()
            process.wait()


def _messages(stream: IO[bytes], time_limit: float) -> Iterator[dict[str, Any]]:
    """Yield the child's JSON lines until it closes the stream.

    Raises:
        TimeoutError: a check takes too long.
    """
    partial_line, deadline = b"", time.monotonic() + time_limit
    while True:
        if not select.select([stream], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise TimeoutError
        block = stream.read(1 << 16)
        if not block:
            return
        *lines, partial_line = (partial_line + block).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ends" in message:
                deadline = time.monotonic() + time_limit
            yield message


def _exit_reason(process: "subprocess.Popen[bytes]", output: IO[bytes]) -> str:
    """Return how a child process ended, with the last line of its output."""
    try:
        status = process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return "closed its connection without ending"
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    last_line = f": {lines[-1]}" if lines else ""
    reason = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    return reason + last_line


def main() -> None:
    """Run checks in this process, a child, and write JSON lines to the parent.

    A line is written when a check begins, for each of its results, and when it ends. The first argument is
    JSON: the file descriptor to write the lines to, the device and parameters of CheckContext, and the names
    of the checks.
    """
    descriptor, device, params, names = json.loads(sys.argv[1])
    context = CheckContext(device, Path(params))
    set_triton_cache_folder()
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as stream:

        def send(message: dict[str, Any]) -> None:
            stream.write(json.dumps(message) + "\n")

        for name in names:
            send({"begins": name})
            for result in _run_check_safely(name, context):
                send({"result": result.as_json()})
            send({"ends": name})


def _run_check_safely(name: str, context: CheckContext) -> list[CheckResult]:
    try:
        return run_check(name, context)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # anything that a package's import or a driver raises, even SystemExit
        return [CheckResult(name, CheckStatus.BROKEN, describe_briefly(error), remedy_for(name))]
