"""The CUDA toolkit that compiles kernels for GPUs, and whether a driver runs what it compiles."""

import importlib.metadata
from typing import Any

import numpy as np


def toolkit_version() -> tuple[int, int]:
    """Return the CUDA version of numba's compiler: from its wheels, else from the installed toolkit.

    Raises:
        Exception: there is no toolkit; of any type.
    """
    for package in ("nvidia-nvvm", "nvidia-cuda-nvrtc"):
        try:
            major, minor = importlib.metadata.version(package).split(".")[:2]
        except importlib.metadata.PackageNotFoundError:
            continue
        return int(major), int(minor)
    from numba import cuda  # finds an installed toolkit; takes long to import

    major, minor = cuda.runtime.get_version()
    return int(major), int(minor)


def runs_compiled_code(number: int) -> bool:
    """Return whether a GPU's driver runs what the toolkit compiles.

    A driver that is older than the toolkit may, if code is linked first.
    """
    from numba import cuda  # takes long to import

    @cuda.jit
    def count(numbers: Any) -> None:
        numbers[cuda.threadIdx.x] += 1

    try:
        with cuda.gpus[number]:
            numbers = cuda.to_device(np.zeros(32, np.int32))
            count[1, 32](numbers)
            return bool((numbers.copy_to_host() == 1).all())
    except Exception:  # linker, driver and compiler errors have no common base class
        return False
