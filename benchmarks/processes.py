"""Timed commands. Imports little, because a child's peak of memory includes its parent's at the fork."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# together, these import all that runs import
_IMPORTS = (
    "foldcli.pipeline.runs.run, foldcli.report.plots",
    "model.planning.kernel_process, model.planning.kernel_launches",
    "msa.gpu.engine",
)


def fail(text: str) -> None:
    raise SystemExit(f"benchmark: {text}")


@dataclass(frozen=True)
class Run:
    """A finished process: wall and CPU seconds, and peak resident set in bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def timed(command: list[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> Run:
    """Run a command, in a folder if given; the benchmark ends if it fails."""
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=folder
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        fail(f"{' '.join(command)} ended with {process.returncode}:\n{output[-2000:]}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def python_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that keeps and uses bytecode in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def compile_bytecode(folder: Path) -> None:
    """Import all that runs import, as installers do, in processes that keep the bytecode in a folder."""
    for modules in _IMPORTS:
        command = [sys.executable, "-c", f"import {modules}"]
        subprocess.run(command, env=python_environment(folder), stderr=subprocess.DEVNULL)
