"""The start of processes with this folder in PYTHONPATH, which may simulate a GPU.

Their threads are fast, and Python functions stand in for intrinsics: the simulator has no LLVM types.
"""

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

_STAND_INS = Path(__file__).parents[1] / "cuda/alignment/simulator"


class _StandIns:
    """A finder of modules that stand in for those with intrinsics."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not (name.startswith("cuda.alignment.") and name.endswith("intrinsics")):
            return None
        file = "_".join(name.split(".")[2:]) + ".py"
        return spec_from_file_location(name, _STAND_INS / file)


if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    sys.meta_path.insert(0, _StandIns)
    from tests.cuda.alignment import block_threads

    block_threads.install()
