"""The start of processes with this folder in PYTHONPATH, which may simulate a GPU.

Their threads are fast, Python functions stand in for intrinsics, because the simulator has no LLVM types, and
modules are changed where the simulator differs from a GPU.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).parents[1] / "cuda/alignment/simulator"


class _PatchingLoader(SourceFileLoader):
    """A loader that changes a module after its execution."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        PATCHES[module.__name__](module)


class _SimulatorFinder:
    """A finder of modules that stand in for others, or are changed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.startswith("cuda.alignment.") and name.endswith("intrinsics"):
            return spec_from_file_location(name, _FOLDER / ("_".join(name.split(".")[2:]) + ".py"))
        if name not in PATCHES:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _PatchingLoader(name, spec.origin)
        return spec


if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from tests.cuda.alignment import block_threads
    from tests.cuda.alignment.simulator.patches import PATCHES

    sys.meta_path.insert(0, _SimulatorFinder)
    block_threads.install()
