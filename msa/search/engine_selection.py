"""Which engine does a search: the CPU or GPUs, chosen once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msa.search.engine import Engine

if TYPE_CHECKING:
    from msa.database.sequence_arrays import SequenceArrays
    from msa.gpu.gpu_worker import Member
    from msa.gpu.settings import GpuSettings

Progress = Callable[[int, int], None]


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
        return gpu_numbers(self.device)


def gpu_numbers(device: str) -> list[int]:
    """Numbers of the GPUs that a device such as "cuda:0,1" names, or of the first."""
    return [int(number) for number in (device.partition(":")[2] or "0").split(",")]


def choose_engine(
    choice: EngineChoice,
    notice: Callable[[str], None],
    compiling: Progress = lambda done, needed: None,
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
    if len(choice.gpus) > 1:
        return _several_gpus(choice, compiling)
    return _one_gpu(choice, notice, compiling) or _cpu()


def _one_gpu(choice: EngineChoice, notice: Callable[[str], None], compiling: Progress) -> Engine | None:
    """The engine on a GPU; None, which has been said, if there is none and any would do."""
    from msa.gpu.devices import GpuUnavailable, has_nvidia_hardware
    from msa.gpu.opening import open_gpu, without_collection

    with without_collection():
        try:
            gpu = open_gpu(*choice.gpus)
        except GpuUnavailable as error:
            if choice.device != "auto":
                raise
            if has_nvidia_hardware():
                notice(f"searching on the CPU: {error.reason}")
            return None
        from msa.gpu.compiling import Compiling
        from msa.gpu.engine import GpuEngine
        from msa.gpu.worker import Worker

    settings = _settings(choice)
    worker = Worker(gpu, settings, Compiling(settings.kernels, compiling))

    def instead(targets: "SequenceArrays") -> "Sequence[Member] | None":
        # what passes through takes many times the launches, and each would wait for the interpreter while
        # other threads merge and write; for what stays, a process of its own starts too late
        if worker.has_room_for(targets):
            return None
        from msa.gpu.remote import remote_workers

        return remote_workers([gpu.number], settings, compiling)

    return GpuEngine([worker], instead)


def _several_gpus(choice: EngineChoice, compiling: Progress) -> Engine:
    """The engine on several GPUs, each in a process of its own."""
    from msa.gpu.remote import remote_workers

    workers = remote_workers(choice.gpus, _settings(choice), compiling)
    # imported while the processes start
    from msa.gpu.devices import GpuUnavailable
    from msa.gpu.engine import GpuEngine

    kinds = {worker.gpu.capability: worker.gpu for worker in workers}
    if len(kinds) > 1:
        one, other, *_ = kinds.values()
        raise GpuUnavailable(
            f"GPUs of several generations do not search together: {one.name} ({one.number}) and "
            f"{other.name} ({other.number})"
        )
    return GpuEngine(workers)


def _settings(choice: EngineChoice) -> "GpuSettings":
    from msa.gpu.settings import GpuSettings

    settings = GpuSettings(choice.kernels, choice.share)
    if choice.most_gpu_bytes is not None:
        settings = replace(settings, most_bytes=choice.most_gpu_bytes)
    return settings


def _cpu() -> Engine:
    from msa.cpu.engine import CpuEngine

    return CpuEngine()
