"""The start of processes that drive a GPU or score, before the searching one has imported what it needs.

Neither this module nor its imports need numpy.
"""

import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msa.base.progress import CompileProgress
from msa.base.services.service import Service, signal_name
from msa.gpu.device.cuda_context import open_in_background

if TYPE_CHECKING:
    from msa.gpu.device.devices import GpuUnavailable
    from msa.gpu.worker.worker_process import GpuHandler

ENTRY = f"{__name__}:serve_gpu"
_SCORING_ENTRY = "msa.search.scoring.scoring_worker:ScoringHandler"


class GpuProcess:
    """A process that drives a GPU, and maybe one that scores candidates and requests alignments from it.

    Args:
        gpu: number of the GPU.
        scores: whether to start one that scores.
        entry: entry of the GPU's process.

    Attributes:
        gpu: as given.
        service: the GPU's process; see `GpuHandler`.
        scoring: that which scores; see `ScoringHandler`.
        status: of the GPU's process.
    """

    def __init__(self, gpu: int, scores: bool = False, entry: str = ENTRY) -> None:
        self.gpu, self.status = gpu, GpuStatus()
        options: Any = {"ended": partial(process_ended, gpu), "on_progress": self.status.update}
        self.scoring: Service | None = None
        if not scores:
            self.service = Service(entry, gpu, None, **options)
            return
        aligning, requesting = socket.socketpair()
        with aligning, requesting:
            number = aligning.fileno()
            self.service = Service(entry, gpu, number, pass_fds=[number], **options)
            number = requesting.fileno()
            self.scoring = Service(_SCORING_ENTRY, gpu, number, pass_fds=[number])

    def close(self) -> None:
        """End the processes."""
        if self.scoring is not None:
            self.scoring.kill()
        self.service.close()


class GpuStatus:
    """The state of a GPU's process.

    Attributes:
        resident: see `LocalWorker`.
        seconds: see `LocalWorker`.
        compile_progress: called with the kernels compiled and to compile.
    """

    def __init__(self) -> None:
        self.resident = False
        self.seconds: dict[str, float] = {}
        self.compile_progress: CompileProgress = lambda compiled, needed: None

    def update(self, kind: str, *values: Any) -> None:
        """Take what the process reports."""
        if kind == "status":
            self.resident, self.seconds = values
        else:
            self.compile_progress(*values)


def process_ended(gpu: int, code: int | None = None) -> "GpuUnavailable":
    """Return the error of a GPU whose process has ended, with its exit code if that is known."""
    from msa.gpu.device.devices import GpuUnavailable  # imports numpy

    return GpuUnavailable(
        f"the process of GPU {gpu} has ended{'' if code is None else f': {_exit_reason(code)}'}",
        "Its own messages are above; the system log (dmesg) may report memory or driver errors.",
    )


def _exit_reason(code: int) -> str:
    """Describe the exit code of a process: "signal SIGKILL" or "exit status 1"."""
    if code >= 0:
        return f"exit status {code}"
    if code == -signal.SIGBUS:
        return "signal SIGBUS: a file of the database was truncated, or its disk cannot be read"
    return f"signal {signal_name(-code)}"


def serve_gpu(report: Callable[..., None], gpu: int, aligning: int | None) -> "GpuHandler":
    """Drive a GPU; see `GpuHandler`."""
    # the driver starts while numpy is imported
    open_in_background(f"cuda:{gpu}")
    from msa.gpu.worker.worker_process import GpuHandler  # imports numpy

    return GpuHandler(report, gpu, aligning)
