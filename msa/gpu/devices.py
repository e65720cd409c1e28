"""Which GPU there is, and if none can be used, why: driver, toolkit, device and memory, each by name.

Every reason is one line of its own, with the versions or sizes that decide it, as a search on the CPU takes a
hundred times as long and its user should know what to mend.
"""

import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msa.errors import MissingError

OLDEST = (8, 0)
"""Compute capability from which the kernels run."""

LEAST_FREE_BYTES = 512 * 2**20
"""GPU memory that a search of even the smallest database asks for."""

_NVIDIA_VENDOR = "0x10de"
_REMEDY = "Use --device cpu, or --device auto to take a GPU where one works."

Version = tuple[int, int]


class GpuUnavailable(MissingError):
    """The GPU asked for cannot be used; `reason` says why in one line."""

    def __init__(self, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(reason, remedy)


@dataclass(frozen=True)
class Gpu:
    """A GPU that kernels can be run on.

    Args:
        number: of those that the driver shows this process.
        name: such as "NVIDIA H200".
        capability: its compute capability.
        driver: the newest CUDA that the driver runs.
        toolkit: the CUDA that compiles the kernels.
        free_bytes: memory that was free when it was found, as the driver says.
        total_bytes: memory in all.
    """

    number: int
    name: str
    capability: Version
    driver: Version
    toolkit: Version
    free_bytes: int
    total_bytes: int


def has_nvidia_hardware() -> bool:
    """Whether this machine has an NVIDIA GPU, with or without a driver for it."""
    if any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")):
        return True
    # a display controller has class 0x03…; NVIDIA also makes network cards
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False


def find_gpu(number: int = 0) -> Gpu:
    """The GPU to search on, its primary context made.

    Args:
        number: of those that the driver shows this process.

    Raises:
        GpuUnavailable: there is no driver, none that is new enough for the toolkit, no such GPU, it is older
            than `OLDEST`, or has less than `LEAST_FREE_BYTES` free.
    """
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        return _simulated(number)
    driver_version, count = _driver()
    toolkit_version = _toolkit()
    if number >= count:
        raise GpuUnavailable(f"there is no GPU number {number}: the driver shows {count}, counted from 0")
    from numba import cuda

    try:
        with cuda.gpus[number]:
            device = cuda.get_current_device()
            free, total = map(int, cuda.current_context().get_memory_info())
    except Exception as error:  # numba's and cuda-core's errors share no class
        raise GpuUnavailable(f"GPU {number} cannot be opened: {_first_line(error)}") from error
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    gpu = Gpu(number, name, tuple(device.compute_capability), driver_version, toolkit_version, free, total)
    if gpu.capability < OLDEST:
        raise GpuUnavailable(
            f"{name} has compute capability {_text(gpu.capability)}; the kernels need {_text(OLDEST)}"
        )
    if free < LEAST_FREE_BYTES:
        raise GpuUnavailable(
            f"{name} has too little memory: {LEAST_FREE_BYTES >> 20} MiB are asked for, "
            f"{free >> 20} of {total >> 20} MiB are free"
        )
    if driver_version < toolkit_version and not _compiles_and_runs(number):
        runs = _text(driver_version)
        raise GpuUnavailable(
            f"the NVIDIA driver is too old for the CUDA toolkit: it runs CUDA {runs}, and the toolkit is "
            f"{_text(toolkit_version)}",
            f"Update the driver, or install the toolkit that it runs: "
            f"pip install 'cuda-toolkit=={runs}.*' 'nvidia-nvvm=={runs}.*'. {_REMEDY}",
        )
    return gpu


def _driver() -> tuple[Version, int]:
    """The newest CUDA that the driver runs, and how many GPUs it shows."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise GpuUnavailable(
            "the CUDA bindings are not installed", f"pip install 'foldcli[cuda]'. {_REMEDY}"
        ) from error
    try:
        (result,) = driver.cuInit(0)
    except Exception as error:  # a missing library is an error of cuda.pathfinder, an old one a RuntimeError
        raise GpuUnavailable("there is no NVIDIA driver (libcuda.so.1 is not found)") from error
    _, version = driver.cuDriverGetVersion()
    if result == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise GpuUnavailable("the NVIDIA driver shows this process no GPU")
    if result != driver.CUresult.CUDA_SUCCESS:
        raise GpuUnavailable(
            f"the NVIDIA driver (CUDA {_text(_split(version))}) does not start: {result.name}"
        )
    _, count = driver.cuDeviceGetCount()
    return _split(version), int(count)


def _toolkit() -> Version:
    """The CUDA of the compiler that numba uses: of its wheels, else of the toolkit on the machine."""
    for package in ("nvidia-nvvm", "nvidia-cuda-nvrtc"):
        try:
            major, minor = importlib.metadata.version(package).split(".")[:2]
        except importlib.metadata.PackageNotFoundError:
            continue
        return int(major), int(minor)
    from numba import cuda

    try:
        major, minor = cuda.runtime.get_version()
    except Exception as error:  # whatever the library loader says
        raise GpuUnavailable(
            "there is no CUDA toolkit to compile kernels with", f"pip install 'foldcli[cuda]'. {_REMEDY}"
        ) from error
    return int(major), int(minor)


def _compiles_and_runs(number: int) -> bool:
    """Whether the driver takes what the toolkit makes: an older one may, where code is linked before."""
    import numpy as np
    from numba import cuda

    @cuda.jit
    def count(numbers: Any) -> None:
        numbers[cuda.threadIdx.x] += 1

    try:
        with cuda.gpus[number]:
            numbers = cuda.to_device(np.zeros(32, np.int32))
            count[1, 32](numbers)
            return bool((numbers.copy_to_host() == 1).all())
    except Exception:  # linker, driver and compiler errors share no class
        return False


def _simulated(number: int) -> Gpu:
    """numba's simulator, which runs kernels as Python; for tests."""
    if number:
        raise GpuUnavailable(f"there is no GPU number {number}: the simulator has one")
    return Gpu(0, "numba's simulator", (9, 0), (0, 0), (0, 0), 2**30, 2**30)


def _split(version: int) -> Version:
    return version // 1000, version % 1000 // 10


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
