"""Compilation of kernels with NVIDIA's compiler, without a GPU."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# in continuous integration, a missing compiler is a failure
REQUIRED = os.environ.get("FOLDCLI_REQUIRE_COMPILER") == "1"

Compiles = Callable[..., None]


def _missing(reason: str) -> None:
    """Skip the test, or fail it where the compiler is required."""
    if REQUIRED:
        pytest.fail(f"{reason}; FOLDCLI_REQUIRE_COMPILER=1 requires it", pytrace=False)
    pytest.skip(reason)


def _find_ptxas() -> str | None:
    """Return the path of NVIDIA's assembler: from its wheel, which matches the compiler's, else from PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nvidia-cuda-nvcc") or ():
            if file.name == "ptxas":
                return str(file.locate())
    return shutil.which("ptxas")


@pytest.fixture(scope="session")
def ptxas() -> str | None:
    """Return the path of NVIDIA's assembler, which reports registers and spills; None if it is missing."""
    found = _find_ptxas()
    if found is None and REQUIRED:
        _missing("no ptxas")
    return found


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skip the test if NVIDIA's compiler libraries are missing."""
    from numba.cuda.cudadrv import nvrtc, nvvm

    try:
        nvvm.NVVM()
        nvrtc.get_supported_ccs()
    except Exception as error:  # the loader's exceptions differ between releases
        _missing(f"no NVIDIA compiler libraries: {type(error).__name__}")


@pytest.fixture
def assert_compiles(compiler: None, ptxas: str | None, tmp_path: Path) -> Compiles:
    """Return a function that compiles a kernel and fails if it uses local memory or spills registers.

    Its arguments are the kernel as a Python function, its numba signature, the compute capability, and
    optionally the launch bounds (threads per block, blocks per multiprocessor).
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
        # the compiler may be newer than ptxas; no kernel needs its PTX version
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
