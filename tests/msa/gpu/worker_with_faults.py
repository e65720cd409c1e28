"""A GPU's process in the simulator, with CPU kernels and an optional fault.

    worker_with_faults.py FAULT SOCKET GPU [module search path …]

FAULT is "none"; "error" or "no memory" when scores are computed; "stuck" at the second batch of queries; or
"waiting" there until the search is cancelled.
"""

import sys
import threading
from typing import Any

import numpy as np

from msa.base.errors import OutOfGpuMemory
from msa.gpu.device.database_stream import DatabaseStream
from msa.gpu.worker import alignment, local_worker
from msa.gpu.worker.local_worker import LocalWorker
from msa.gpu.worker.worker_process import main
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


fault = sys.argv.pop(1)
for module, name, replacement in cpu_kernels.replacements():
    setattr(module, name, replacement)
if fault == "error":
    alignment.end_positions = failing
elif fault == "no memory":
    alignment.end_positions = without_memory
elif fault == "waiting":
    local_worker.LocalWorker = WaitingWorker  # type: ignore[misc]
elif fault == "stuck":
    local_worker.DatabaseStream = StuckStream  # type: ignore[misc]
main()
