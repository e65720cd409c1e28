"""Python bytecode for the processes of a benchmark: compiled first, as installers do, then used by all."""

import os
import subprocess
import sys
from pathlib import Path

# together, these import all that runs import
_IMPORTS = (
    "foldcli.pipeline.run, foldcli.report.plots",
    "model.kernel_process, model.kernel_launches",
    "msa.gpu.engine",
)


def python_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that keeps and uses bytecode in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def compile_bytecode(folder: Path) -> None:
    """Import all that runs import, in processes that keep the bytecode in a folder."""
    for modules in _IMPORTS:
        command = [sys.executable, "-c", f"import {modules}"]
        subprocess.run(command, env=python_environment(folder), stderr=subprocess.DEVNULL)
