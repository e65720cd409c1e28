"""Which GPU there is, and if none can be used, why: driver, toolkit, device and memory, each by name.

Every reason is one line of its own, with the versions or sizes that decide it, as a search on the CPU takes a
hundred times as long and its user should know what to mend.
"""

import importlib.metadata
import os
import warnings
from collections.abc import Callable
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


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver of this machine.

    Args:
        cuda: the newest CUDA that it runs.
        status: what it said to being started, by CUDA's name.
        count: GPUs that it shows this process.
    """

    cuda: Version
    status: str
    count: int


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
    driver = _driver()
    check_driver(driver, number)
    gpu = _open(number, driver.cuda, _toolkit())
    check_gpu(gpu, lambda: _compiles_and_runs(number))
    return gpu


def check_driver(driver: Driver, number: int) -> None:
    """Whether a driver works and shows the GPU asked for.

    Raises:
        GpuUnavailable: it does not.
    """
    if driver.status == "CUDA_ERROR_NO_DEVICE":
        raise GpuUnavailable("the NVIDIA driver shows this process no GPU")
    if driver.status != "CUDA_SUCCESS":
        raise GpuUnavailable(f"the NVIDIA driver (CUDA {_text(driver.cuda)}) does not start: {driver.status}")
    if number >= driver.count:
        raise GpuUnavailable(
            f"there is no GPU number {number}: the driver shows {driver.count}, counted from 0"
        )


def check_gpu(gpu: Gpu, runs_code: Callable[[], bool]) -> None:
    """Whether a GPU can be searched on.

    Args:
        gpu: what was found.
        runs_code: whether it runs what the toolkit makes; asked only where the driver is older than that.

    Raises:
        GpuUnavailable: it cannot.
    """
    if gpu.capability < OLDEST:
        raise GpuUnavailable(
            f"{gpu.name} has compute capability {_text(gpu.capability)}; the kernels need {_text(OLDEST)}"
        )
    if gpu.free_bytes < LEAST_FREE_BYTES:
        raise GpuUnavailable(
            f"{gpu.name} has too little memory: {LEAST_FREE_BYTES >> 20} MiB are asked for, "
            f"{gpu.free_bytes >> 20} of {gpu.total_bytes >> 20} MiB are free"
        )
    if gpu.driver < gpu.toolkit and not runs_code():
        runs = _text(gpu.driver)
        raise GpuUnavailable(
            f"the NVIDIA driver is too old for the CUDA toolkit: it runs CUDA {runs}, and the toolkit is "
            f"{_text(gpu.toolkit)}",
            f"Update the driver, or install the toolkit that it runs: "
            f"pip install 'cuda-toolkit=={runs}.*' 'nvidia-nvvm=={runs}.*'. {_REMEDY}",
        )


def _open(number: int, driver: Version, toolkit: Version) -> Gpu:
    """Make the primary context of a GPU that there is, and see what it has."""
    from numba import cuda

    from msa.gpu.memory import use_pool

    use_pool()
    try:
        with warnings.catch_warnings():
            # the bindings warn of an older driver in many words; `check_gpu` says it in one line
            warnings.filterwarnings("ignore", message="cuda-bindings was built for", category=UserWarning)
            with cuda.gpus[number]:
                device = cuda.get_current_device()
                free, total = map(int, cuda.current_context().get_memory_info())
    except Exception as error:  # numba's and cuda-core's errors share no class
        older = f" (the driver runs CUDA {_text(driver)}, and the toolkit is {_text(toolkit)})"
        raise GpuUnavailable(
            f"GPU {number} cannot be opened: {_first_line(error)}{older if driver < toolkit else ''}"
        ) from error
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return Gpu(number, name, tuple(device.compute_capability), driver, toolkit, free, total)


def _driver() -> Driver:
    """The driver, started."""
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
    # a driver that has not started counts nothing
    count = driver.cuDeviceGetCount()[1] if result == driver.CUresult.CUDA_SUCCESS else 0
    return Driver(_split(version), result.name, int(count))


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
