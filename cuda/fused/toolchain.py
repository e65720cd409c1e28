"""The tools with which Triton compiles kernels and their launchers, also on machines without a GPU.

This module does not import torch.
"""

import contextlib
import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import triton
from triton.backends.nvidia import driver

_DRIVER_LIBRARY = "libcuda.so.1"
_DRIVER_FUNCTION = re.compile(r"\bcu[A-Z]\w+")


def build_driver_extension() -> None:
    """Build and load the C extension that launchers call, unless it is in Triton's cache."""
    provide_driver_library()
    driver.CudaUtils()


@cache
def provide_driver_library() -> tempfile.TemporaryDirectory[str] | None:
    """Build and load a library that defines the driver's functions, on a machine without a driver.

    Launchers can then be linked and loaded. On a machine with a GPU they use the driver. Processes forked
    after the first call share the library.

    Returns:
        The folder of the library, which exists as long as this object; None if there is a driver.
    """
    with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
        driver.libcuda_dirs()
        return None
    sources = Path(driver.dirname).glob("driver.*")
    names = {name for path in sources for name in _DRIVER_FUNCTION.findall(path.read_text(errors="replace"))}
    folder = tempfile.TemporaryDirectory(prefix="foldcli-")
    source, library = Path(folder.name) / "driver.c", Path(folder.name) / _DRIVER_LIBRARY
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)))
    compiler = next(filter(None, map(shutil.which, ("gcc", "clang"))), "cc")
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{_DRIVER_LIBRARY}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True, capture_output=True)
    ctypes.CDLL(str(library))
    triton.knobs.nvidia.libcuda_path = folder.name
    return folder
