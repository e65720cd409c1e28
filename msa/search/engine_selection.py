"""Selection of the search engine: the CPU, one GPU or several GPUs.

The CPU engine is imported only when it is selected: it needs numba, which takes half a second to import.
"""

from collections.abc import Callable, Sequence

from msa.base.hardware import gpu_numbers, has_nvidia_hardware
from msa.base.progress import CompileProgress
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Engine
from msa.gpu.device.cuda_context import open_in_background
from msa.gpu.device.devices import GpuUnavailable, find_gpu
from msa.gpu.engine import GpuEngine
from msa.gpu.group import GpuWorker
from msa.gpu.remote_worker import RemoteScoring, start_remote_workers
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.process_start import GpuProcess


def create_engine(
    device: str,
    settings: GpuSettings,
    on_fallback: Callable[[str], None],
    compile_progress: CompileProgress = lambda done, needed: None,
    started: GpuProcess | None = None,
) -> Engine:
    """Create the search engine of a device.

    Args:
        device: "auto", "cpu", "cuda" (the first GPU), "cuda:N" or "cuda:N,N,…"; "auto" selects the first GPU
            if it works, otherwise the CPU.
        settings: see GpuSettings.
        on_fallback: called with a one-line reason if the device is "auto", and the CPU is selected because
            the machine's GPU cannot be used.
        compile_progress: called with the number of GPU kernels compiled so far and the number known to be
            needed; may be called from other threads.
        started: a process that was started ahead to drive the only GPU.

    Raises:
        GpuUnavailable: a requested GPU cannot be used.
    """
    if device != "cpu":
        gpus = gpu_numbers(device)
        if len(gpus) > 1:
            return _multi_gpu_engine(gpus, settings, compile_progress)
        try:
            if started is not None:
                return _process_engine(started, settings, compile_progress)
            return _resident_engine(gpus[0], settings, compile_progress)
        except GpuUnavailable as error:
            if device != "auto":
                raise
            if has_nvidia_hardware():
                on_fallback(f"searching on the CPU: {error.reason}")
    from msa.cpu.engine import CpuEngine  # imports numba

    return CpuEngine()


def _process_engine(process: GpuProcess, settings: GpuSettings, compile_progress: CompileProgress) -> Engine:
    """Create the engine for one GPU in a process of its own."""
    workers, scoring = start_remote_workers([process], settings, compile_progress), process.scoring
    try:
        # raises an exception if the GPU cannot be used
        workers[0].gpu  # noqa: B018
    except GpuUnavailable:
        process.close()
        raise
    return GpuEngine(workers, scoring_process=None if scoring is None else RemoteScoring(scoring))


def _resident_engine(number: int, settings: GpuSettings, compile_progress: CompileProgress) -> Engine:
    """Create the engine for one GPU in this process, unless its database turns out not to fit.

    Streaming a database takes many more kernel launches, each of which would wait for the interpreter lock
    while other threads merge and write, so a separate process is faster.
    """
    open_in_background(f"cuda:{number}")
    from msa.gpu.worker.local_worker import LocalWorker  # numpy, while the driver starts

    worker = LocalWorker(find_gpu(number), settings, compile_progress)

    def replacement_workers(targets: SequenceArrays) -> Sequence[GpuWorker] | None:
        if worker.fits(targets):
            return None
        return start_remote_workers([GpuProcess(number)], settings, compile_progress)

    return GpuEngine([worker], replacement_workers)


def _multi_gpu_engine(
    gpus: Sequence[int], settings: GpuSettings, compile_progress: CompileProgress
) -> Engine:
    """Create the engine for several GPUs, each with its own process."""
    processes = [GpuProcess(gpu) for gpu in gpus]
    workers = start_remote_workers(processes, settings, compile_progress)
    gpu_by_capability = {worker.gpu.capability: worker.gpu for worker in workers}
    if len(gpu_by_capability) > 1:
        one, other, *_ = gpu_by_capability.values()
        raise GpuUnavailable(
            f"GPUs of different generations cannot search together: {one.name} ({one.number}) and "
            f"{other.name} ({other.number})"
        )
    return GpuEngine(workers)
