"""Kernels without a GPU: compiled by NVIDIA's own compiler, or run as Python by numba's simulator."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# a machine whose task it is to compile the kernels must not pass because it could not
REQUIRED = os.environ.get("FOLDCLI_REQUIRE_COMPILER") == "1"

Compiles = Callable[..., None]


@pytest.fixture
def run_in_simulator(root: Path) -> Callable[[str], None]:
    """Runs a file of tests again in a process that has chosen the simulator before it imports numba."""

    def run(file: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
        environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
        result = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
        assert result.returncode == 0 and " passed" in result.stdout, result.stdout + result.stderr

    return run


def _not_there(what: str) -> None:
    if REQUIRED:
        pytest.fail(f"{what}; FOLDCLI_REQUIRE_COMPILER=1 asks for it", pytrace=False)
    pytest.skip(what)


def _ptxas() -> str | None:
    """NVIDIA's assembler: of its wheel, which fits the compiler's, else of the machine."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nvidia-cuda-nvcc") or ():
            if file.name == "ptxas":
                return str(file.locate())
    return shutil.which("ptxas")


@pytest.fixture(scope="session")
def ptxas() -> str | None:
    """Path of NVIDIA's assembler, which alone knows registers and spills; None where it is not there."""
    found = _ptxas()
    if found is None and REQUIRED:
        _not_there("no ptxas")
    return found


@pytest.fixture(scope="session")
def compiler() -> None:
    """NVIDIA's compiler libraries; the test is skipped where they are not there."""
    from numba.cuda.cudadrv import nvrtc, nvvm

    try:
        nvvm.NVVM()
        nvrtc.get_supported_ccs()
    except Exception as error:  # the loader's error differs from release to release
        _not_there(f"no NVIDIA compiler libraries: {type(error).__name__}")


@pytest.fixture
def assert_compiles(compiler: None, ptxas: str | None, tmp_path: Path) -> Compiles:
    """A function that compiles a kernel and fails where it uses local memory or spills registers.

    It takes the kernel as a Python function, numba's signature, the compute capability, and the launch bounds
    (threads of a block, blocks of a multiprocessor) if it has such.
    """

    def check(
        function: Callable[..., Any],
        signature: Any,
        capability: tuple[int, int],
        launch_bounds: tuple[int, int] | None = None,
    ) -> None:
        from numba import cuda

        bounds = {} if launch_bounds is None else {"launch_bounds": launch_bounds}
        ptx, _ = cuda.compile_ptx(function, signature, cc=capability, **bounds)
        assert ".entry" in ptx and ".local" not in ptx
        if ptxas is None:
            return
        # the compiler may be newer than ptxas; nothing here needs its version
        path = tmp_path / "kernel.ptx"
        path.write_text(re.sub(r"^\.version .*$", ".version 8.0", ptx, flags=re.MULTILINE))
        arch = f"-arch=sm_{capability[0]}{capability[1]}"
        command = [ptxas, "-v", arch, str(path), "-o", str(tmp_path / "kernel.cubin")]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        spills = re.findall(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", result.stderr
        )
        assert spills and all(numbers == ("0", "0", "0") for numbers in spills), result.stderr

    return check
