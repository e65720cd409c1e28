"""GPU contexts of numba: their properties, and whether compiled code runs in them."""

import importlib.metadata
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from msa.gpu.memory import use_pool


@dataclass(frozen=True)
class ContextProperties:
    """The properties of an open GPU; see `msa.gpu.devices.Gpu`."""

    name: str
    capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


def open_context(number: int) -> ContextProperties:
    """Create the primary context of a GPU, with foldcli's memory pool, and read its properties.

    Raises:
        Exception: the GPU cannot be opened; of any type.
    """
    use_pool()
    with warnings.catch_warnings():
        # the bindings print a long warning about older drivers; `devices.check_gpu` reports this in one line
        warnings.filterwarnings("ignore", message="cuda-bindings was built for", category=UserWarning)
        with cuda.gpus[number]:
            device = cuda.get_current_device()
            free, total = map(int, cuda.current_context().get_memory_info())
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return ContextProperties(name, tuple(device.compute_capability), free, total)


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
    major, minor = cuda.runtime.get_version()
    return int(major), int(minor)


def runs_compiled_code(number: int) -> bool:
    """Return whether a GPU's driver runs what the toolkit compiles.

    A driver that is older than the toolkit may, if code is linked first.
    """

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
