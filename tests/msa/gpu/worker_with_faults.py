"""Entries of a GPU's process in the simulator, with CPU kernels and an optional fault."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from msa.base.errors import OutOfGpuMemory
from msa.gpu.device.database_stream import DatabaseStream
from msa.gpu.worker import alignment, local_worker
from msa.gpu.worker.local_worker import LocalWorker
from msa.gpu.worker.process_start import serve_gpu
from msa.gpu.worker.worker_process import GpuHandler
from tests.msa.gpu import cpu_kernels


def failing(*arguments: Any, **keywords: Any) -> np.ndarray:
    raise ValueError("simulated fault")


def without_memory(*arguments: Any, **keywords: Any) -> np.ndarray:
    raise OutOfGpuMemory(12345)


class StuckStream(DatabaseStream):
    starts = 0

    def start(self) -> None:
        StuckStream.starts += 1
        # the first start loads the targets, each further one filters a batch
        if StuckStream.starts == 3:
            threading.Event().wait()
        super().start()


class WaitingWorker(LocalWorker):
    batches = 0

    def _queue_filter(self, *arguments: Any) -> Any:
        (cancelled,) = (each for each in arguments if isinstance(each, threading.Event))
        WaitingWorker.batches += 1
        if WaitingWorker.batches == 2:
            cancelled.wait()
        return super()._queue_filter(*arguments)


def none(report: Callable[..., None], gpu: int, aligning: int | None) -> GpuHandler:
    """Serve without a fault."""
    for module, name, replacement in cpu_kernels.replacements():
        setattr(module, name, replacement)
    return serve_gpu(report, gpu, aligning)


def error(*arguments: Any) -> GpuHandler:
    """Fail when scores are computed."""
    handler = none(*arguments)
    alignment.end_positions = failing
    return handler


def no_memory(*arguments: Any) -> GpuHandler:
    """Fail for lack of memory when scores are computed."""
    handler = none(*arguments)
    alignment.end_positions = without_memory
    return handler


def waiting(*arguments: Any) -> GpuHandler:
    """Wait at the second batch of queries until the search is cancelled."""
    local_worker.LocalWorker = WaitingWorker  # type: ignore[misc]
    return none(*arguments)


def stuck(*arguments: Any) -> GpuHandler:
    """Hang at the second batch of queries."""
    local_worker.DatabaseStream = StuckStream  # type: ignore[misc]
    return none(*arguments)


def exiting(*arguments: Any) -> GpuHandler:
    """End at once."""
    raise SystemExit(9)
