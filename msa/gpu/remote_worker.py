"""GPUs that are each driven by a separate process: the side of the searching process.

The host needs one or two milliseconds of Python per query and GPU. In a single process, the threads of all
GPUs would share one interpreter, and four GPUs would be no faster than two.
"""

import signal
import subprocess
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from msa.base.progress import CompileProgress
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.query_profile import QueryProfile
from msa.engines.settings import SearchSettings
from msa.gpu.device.devices import Gpu
from msa.gpu.requests import RemoteAligner, RemoteAlignmentBatch, Requests, process_ended
from msa.gpu.worker.interface import BestTargets, GpuSettings
from msa.gpu.worker.process_start import COMMAND, take_process
from msa.gpu.worker.worker_process import WorkerStatus, share_sequences

_EXIT_SECONDS = 10.0
"""Maximum time for a process to end by itself; the driver needs a fraction of a second to free GPU memory."""


def start_remote_workers(
    gpus: Sequence[int],
    settings: GpuSettings,
    compile_progress: CompileProgress = lambda compiled, needed: None,
    command: Sequence[str] = COMMAND,
) -> list["RemoteWorker"]:
    """Start a process for each GPU; they end with this process, or when no worker is referenced any more.

    Args:
        gpus: their numbers.
        settings: of each GPU.
        compile_progress: called with the kernels compiled and to compile, summed over all processes.
        command: see `take_process`.
    """
    progress = _SummedProgress(len(gpus), compile_progress)
    processes = [GpuProcess(gpu, command, partial(progress, index)) for index, gpu in enumerate(gpus)]
    lifetime = _SharedLifetime()
    weakref.finalize(lifetime, _end_processes, processes)
    return [
        RemoteWorker(process, settings, (index, len(gpus)), lifetime)
        for index, process in enumerate(processes)
    ]


class RemoteWorker(RemoteAligner):
    """A GPU driven by a separate process; implements msa.gpu.worker.interface.GpuWorker.

    Args:
        process: the process, just started.
        settings: see GpuSettings.
        share: see KernelCompiler.
        lifetime: kept so that the process does not end.
    """

    def __init__(
        self,
        process: "GpuProcess",
        settings: GpuSettings,
        share: tuple[int, int],
        lifetime: "_SharedLifetime",
    ) -> None:
        super().__init__(process)
        self._process, self._settings, self._lifetime = process, settings, lifetime
        self._opened = process.request("open", process.gpu, settings, share)

    @property
    def gpu(self) -> Gpu:
        """The GPU; waits until it has been opened.

        Raises:
            GpuUnavailable: if it cannot be used.
        """
        gpu: Gpu = self._opened.result()
        return gpu

    @property
    def database_budget(self) -> int:
        """Bytes of GPU memory that targets may use."""
        return self._settings.database_budget(self.gpu.free_bytes)

    @property
    def resident(self) -> bool:
        """True if the targets stay on the GPU, as far as is known."""
        return self._process.status.resident

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per stage so far."""
        return self._process.status.seconds

    def load(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Use these targets from now on."""
        return self._process.request("load", share_sequences(targets), part)

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """Compile all kernels for queries of these lengths, before the filter of later calls begins."""
        return self._process.request("prepare", list(lengths), many_pairs)

    def filter(
        self,
        queries: Sequence[QueryProfile],
        settings: SearchSettings,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> "RemoteFilteredBatch":
        """Queue the filter of a batch; `drain` notifies the process of a cancellation."""
        number = next(self._batch_numbers)
        best = self._process.request("filter", number, list(queries), settings, more_follow)
        return RemoteFilteredBatch(self._process, number, best)

    def drain(self) -> "Future[None]":
        """Abandon the current search."""
        return self._process.request("drain")

    def release_unused(self) -> "Future[None]":
        """Release GPU memory that is not needed between searches."""
        return self._process.request("release_unused")

    def close(self) -> None:
        """End the process."""
        self._process.hang_up()
        self._process.wait()


class RemoteFilteredBatch(RemoteAlignmentBatch):
    """A batch that is filtered first; implements msa.gpu.worker.interface.FilteredBatch."""

    def best(self) -> "Future[BestTargets]":
        """Return the result of the filter."""
        return self._started


class GpuProcess(Requests):
    """A process that runs msa.gpu.worker.worker_process.

    Args:
        gpu: number of its GPU.
        command: see `take_process`.
        compile_progress: called with kernels compiled and to compile.
    """

    def __init__(self, gpu: int, command: Sequence[str], compile_progress: CompileProgress) -> None:
        started = take_process(gpu, command)
        self.process, self._compile_progress = started.process, compile_progress
        self.status = WorkerStatus(False, {})
        super().__init__(gpu, started.socket)

    def wait(self) -> None:
        """Wait until the process has ended; kill it after a timeout."""
        try:
            self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        super().wait()

    def ended(self) -> Exception:
        """Return the error of requests that the process did not answer before it ended."""
        return process_ended(self.gpu, _exit_reason(self.process.returncode))

    def _handle(self, message: tuple[Any, ...]) -> None:
        """Handle an answer or a progress report."""
        if message[0] is None:
            self._compile_progress(*message[1:])
            return
        self.status = message[3]
        super()._handle(message)


class _SharedLifetime:
    """An object that all workers started together reference; when it is collected, their processes end."""


class _SummedProgress:
    """Compilation progress, summed over all processes.

    Args:
        processes: number of processes.
        progress: called with the sums.
    """

    def __init__(self, processes: int, progress: CompileProgress) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._per_process = [(0, 0)] * processes

    def __call__(self, index: int, compiled: int, needed: int) -> None:
        """Update the progress of one process."""
        with self._lock:
            self._per_process[index] = compiled, needed
            self._progress(*map(sum, zip(*self._per_process, strict=True)))


def _end_processes(processes: Sequence[GpuProcess]) -> None:
    """End all processes in parallel."""
    for process in processes:
        process.hang_up()
    for process in processes:
        process.wait()


def _exit_reason(code: int) -> str:
    """Describe the exit code of a process: "signal SIGKILL" or "exit status 1"."""
    if code >= 0:
        return f"exit status {code}"
    if code == -signal.SIGBUS:
        return "signal SIGBUS: a file of the database was truncated, or its disk cannot be read"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
