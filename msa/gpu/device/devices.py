"""Detection of usable GPUs, with the reason if one cannot be used: driver, toolkit, device or memory.

Each reason is a single line that names the relevant versions or sizes. A search on the CPU takes a hundred
times as long, so users should learn what to fix.

Importing this module does not import numba.
"""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda import driver
from cuda.alignment.device import Device, device_properties, memory_info, select_device
from cuda.driver import DriverError
from msa.base.errors import MissingError

MIN_CAPABILITY = (8, 0)
"""Oldest compute capability on which the kernels run."""

MIN_FREE_BYTES = 512 * 2**20
"""GPU memory that a search needs even for the smallest database."""

_SUCCESS = "CUDA_SUCCESS"
# results of calls after which a process cannot use the GPU any more, as cuda.h says
_LASTING_ERRORS = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ASSERT", "CONTAINED", "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE", "ECC_UNCORRECTABLE",
        "HARDWARE_STACK_ERROR", "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE",
        "INVALID_PC", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "MISALIGNED_ADDRESS", "NVLINK_UNCORRECTABLE",
        "UNKNOWN",
    )
)  # fmt: skip
_REMEDY = "Use --device cpu, or --device auto to use a GPU if one works."

Version = tuple[int, int]


class GpuUnavailable(MissingError):
    """A requested GPU cannot be used; `reason` explains why in one line."""

    def __init__(self, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(reason, remedy)


class AlignmentTooLarge(GpuUnavailable):
    """An alignment does not fit into the memory of the GPU, which other queries may use."""


def lasting_failure(error: Exception) -> GpuUnavailable | None:
    """Return the error of a GPU that its process cannot use any more; None if `error` does not show that."""
    if not isinstance(error, DriverError) or error.name not in _LASTING_ERRORS:
        return None
    return GpuUnavailable(
        f"the GPU failed: {error}",
        "The system log (dmesg) may report memory or driver errors; the same command continues the run.",
    )


@dataclass(frozen=True)
class Gpu:
    """A GPU that kernels can run on.

    Args:
        number: index among the GPUs visible to this process.
        name: for example "NVIDIA H200".
        capability: compute capability.
        driver: newest CUDA version that the driver supports.
        toolkit: version of the CUDA toolkit that compiles the kernels.
        free_bytes: free memory when the GPU was opened.
        total_bytes: total memory.
    """

    number: int
    name: str
    capability: Version
    driver: Version
    toolkit: Version
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class DriverStatus:
    """The state of the NVIDIA driver on this machine."""

    cuda: Version
    status: str
    count: int


def find_gpu(number: int = 0) -> Gpu:
    """Find a GPU and create its primary context.

    Raises:
        GpuUnavailable: there is no driver, it is too old for the toolkit, there is no such GPU, it is older
            than MIN_CAPABILITY, or has less than MIN_FREE_BYTES free.
    """
    started = _start_driver()
    check_driver(started, number)
    return _open_gpu(number, started.cuda)


def name_and_capability(number: int) -> tuple[str, Version] | None:
    """Return the name and compute capability of a GPU, without a context and without numba or torch.

    Returns:
        None if there is no driver or no such GPU.
    """
    try:
        driver.call("cuInit", 0)
        device = device_properties(number)
    except (DriverError, OSError, AttributeError):
        return None
    return device.name, device.capability


def check_driver(driver: DriverStatus, number: int) -> None:
    """Check that the driver works and that the requested GPU is visible.

    Raises:
        GpuUnavailable: otherwise.
    """
    if driver.status == "CUDA_ERROR_NO_DEVICE":
        raise GpuUnavailable("the NVIDIA driver shows this process no GPU")
    if driver.status != _SUCCESS:
        raise GpuUnavailable(
            f"the NVIDIA driver (CUDA {_version_text(driver.cuda)}) does not start: {driver.status}"
        )
    if number >= driver.count:
        raise GpuUnavailable(
            f"there is no GPU number {number}: the driver shows {driver.count} GPUs, numbered from 0"
        )


def check_gpu(gpu: Gpu, runs_code: Callable[[], bool]) -> None:
    """Check that a GPU can run the kernels.

    Args:
        gpu: the GPU.
        runs_code: returns whether the driver runs what the toolkit compiles; called only if the driver is
            older than the toolkit.

    Raises:
        GpuUnavailable: otherwise.
    """
    check_capability(gpu.name, gpu.capability)
    if gpu.free_bytes < MIN_FREE_BYTES:
        raise GpuUnavailable(
            f"{gpu.name} has too little memory: {MIN_FREE_BYTES >> 20} MiB are needed, "
            f"{gpu.free_bytes >> 20} of {gpu.total_bytes >> 20} MiB are free"
        )
    if gpu.driver < gpu.toolkit and not runs_code():
        supported = _version_text(gpu.driver)
        raise GpuUnavailable(
            f"the NVIDIA driver is too old for the CUDA toolkit: it supports CUDA {supported}, "
            f"and the toolkit is {_version_text(gpu.toolkit)}",
            f"Update the driver, or install the toolkit that it supports: "
            f"pip install 'cuda-toolkit=={supported}.*' 'nvidia-nvvm=={supported}.*'. {_REMEDY}",
        )


def check_capability(name: str, capability: Version) -> None:
    """Check that kernels run on GPUs of a compute capability.

    Raises:
        GpuUnavailable: otherwise.
    """
    if capability < MIN_CAPABILITY:
        raise GpuUnavailable(
            f"{name} has compute capability {_version_text(capability)}; "
            f"the kernels need {_version_text(MIN_CAPABILITY)}"
        )


def _open_gpu(number: int, driver_version: Version) -> Gpu:
    """Create the primary context of an existing GPU, read its properties and check them."""
    try:
        toolkit = toolkit_version()
    except Exception as error:  # the library loader raises various exceptions
        raise GpuUnavailable(
            "there is no CUDA toolkit to compile kernels with", f"pip install 'foldcli[cuda]'. {_REMEDY}"
        ) from error
    try:
        select_device(number)
        device, (free, total) = Device.current(), memory_info()
    except DriverError as error:
        supported, required = _version_text(driver_version), _version_text(toolkit)
        older = f" (the driver supports CUDA {supported}, and the toolkit is {required})"
        raise GpuUnavailable(
            f"GPU {number} cannot be opened: {error}{older if driver_version < toolkit else ''}"
        ) from error
    gpu = Gpu(number, device.name, device.capability, driver_version, toolkit, free, total)
    check_gpu(gpu, lambda: runs_compiled_code(number))
    return gpu


def _start_driver() -> DriverStatus:
    """Start the driver."""
    try:
        version = driver.number("cuDriverGetVersion")
    except OSError as error:
        raise GpuUnavailable(f"there is no NVIDIA driver ({driver.LIBRARY} is not found)") from error
    except AttributeError as error:
        raise GpuUnavailable(f"the NVIDIA driver is too old: {error}") from error
    try:
        driver.call("cuInit", 0)
        status, count = _SUCCESS, driver.number("cuDeviceGetCount")
    except DriverError as error:
        # a driver that failed to start cannot count GPUs
        status, count = error.name, 0
    return DriverStatus((version // 1000, version % 1000 // 10), status, count)


def _version_text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


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
