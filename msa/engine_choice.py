"""Which engine does a search: the CPU or a GPU, chosen once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msa.engine import Engine


@dataclass(frozen=True)
class EngineChoice:
    """Where to search.

    Args:
        device: "auto", "cpu", "cuda" (the first GPU) or "cuda:N". "auto" takes the first GPU that works, and
            else the CPU.
        kernels: folder that keeps compiled GPU kernels between runs.
        share: of the GPU's free memory that the search may take.
    """

    device: str
    kernels: Path
    share: float = 0.9


def choose_engine(choice: EngineChoice, notice: Callable[[str], None]) -> Engine:
    """The engine for a choice.

    Args:
        choice: see EngineChoice.
        notice: under "auto", told in one line why the GPU that this machine has cannot be used; told when
            kernels are about to be compiled.

    Raises:
        GpuUnavailable: a GPU was asked for and cannot be used.
    """
    from msa.cpu.engine import CpuEngine

    if choice.device == "cpu":
        return CpuEngine()
    from msa.gpu.devices import GpuUnavailable, find_gpu, has_nvidia_hardware

    try:
        gpu = find_gpu(int(choice.device.partition(":")[2] or 0))
    except GpuUnavailable as error:
        if choice.device != "auto":
            raise
        if has_nvidia_hardware():
            notice(f"searching on the CPU: {error.reason}")
        return CpuEngine()
    from msa.gpu.engine import GpuEngine, GpuSettings

    return GpuEngine([gpu], GpuSettings(choice.kernels, choice.share), notice)
