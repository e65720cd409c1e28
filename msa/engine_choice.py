"""Which engine does a search: the CPU or GPUs, chosen once."""

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msa.engine import Engine


@dataclass(frozen=True)
class EngineChoice:
    """Where to search.

    Args:
        device: "auto", "cpu", "cuda" (the first GPU), "cuda:N" or "cuda:N,N,…". "auto" takes the first GPU
            that works, and else the CPU.
        kernels: folder that keeps compiled GPU kernels between runs.
        share: of each GPU's free memory that the search may take.
        most_gpu_bytes: that the database may take on each GPU, whatever is free.
    """

    device: str
    kernels: Path
    share: float = 0.9
    most_gpu_bytes: int | None = None

    @property
    def gpus(self) -> list[int]:
        """Numbers of the GPUs that are named, or of the first."""
        return [int(number) for number in (self.device.partition(":")[2] or "0").split(",")]


def choose_engine(
    choice: EngineChoice,
    notice: Callable[[str], None],
    compiling: Callable[[int, int], None] = lambda done, needed: None,
) -> Engine:
    """The engine for a choice.

    Args:
        choice: see EngineChoice.
        notice: under "auto", told in one line why the GPU that this machine has cannot be used.
        compiling: called with how many GPU kernels were compiled and how many have to be, as far as is known,
            while there are such; it may be called in other threads.

    Raises:
        GpuUnavailable: a GPU was asked for and cannot be used.
    """
    if choice.device == "cpu":
        return _cpu()
    # the driver takes a fifth of a second for what it does first; numba's import, which comes next, is Python
    threading.Thread(target=_open_contexts, args=(choice.gpus,), daemon=True).start()
    # what is imported stays: a sixth of the time would go into looking for what can go
    with _without_collection():
        return _gpus(choice, notice, compiling) or _cpu()


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


def _gpus(
    choice: EngineChoice, notice: Callable[[str], None], compiling: Callable[[int, int], None]
) -> Engine | None:
    """The engine on GPUs; None, which has been said, if none can be used and none was asked for."""
    from msa.gpu.devices import GpuUnavailable, find_gpu, has_nvidia_hardware

    try:
        gpus = [find_gpu(number) for number in choice.gpus]
        kinds = {gpu.capability: gpu for gpu in gpus}
        if len(kinds) > 1:
            one, other, *_ = kinds.values()
            raise GpuUnavailable(
                f"GPUs of several generations do not search together: {one.name} ({one.number}) and "
                f"{other.name} ({other.number})"
            )
    except GpuUnavailable as error:
        if choice.device != "auto":
            raise
        if has_nvidia_hardware():
            notice(f"searching on the CPU: {error.reason}")
        return None
    from msa.gpu.engine import GpuEngine, GpuSettings

    settings = GpuSettings(choice.kernels, choice.share)
    if choice.most_gpu_bytes is not None:
        settings = replace(settings, most_bytes=choice.most_gpu_bytes)
    return GpuEngine(gpus, settings, compiling)


def _cpu() -> Engine:
    from msa.cpu.engine import CpuEngine

    return CpuEngine()


def _open_contexts(numbers: Sequence[int]) -> None:
    """Start the driver and the GPUs; whatever fails is found again, and said, by `find_gpu`."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    if driver.cuInit(0):
        return
    for number in numbers:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if not driver.cuDeviceGet(ctypes.byref(device), number):
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
