"""A GPU's process under the simulator, with the CPU's kernels: child.py WAY SOCKET [module search path …].

WAY is "works", or what goes wrong: "fails" and "no memory" when scores are asked for, "stuck" at the second
batch of queries, and "waiting" there until the search is given up.
"""

import sys
import threading
from typing import Any

import cpu_kernels
import numpy as np

from msa.gpu import alignment, worker
from msa.gpu.database_stream import Residency
from msa.gpu.memory import OutOfGpuMemory
from msa.gpu.process import main
from msa.gpu.worker import Worker


def failing(*arguments: Any, **keywords: Any) -> np.ndarray:
    raise ValueError("no such luck")


def without_memory(*arguments: Any, **keywords: Any) -> np.ndarray:
    raise OutOfGpuMemory(12345)


class Stuck(Residency):
    begun = 0

    def begin(self) -> None:
        Stuck.begun += 1
        # first the targets, then batch for batch
        if Stuck.begun == 3:
            threading.Event().wait()
        super().begin()


class Waiting(Worker):
    batches = 0

    def _queue(self, batch: Any, limits: Any, again: bool, stopped: threading.Event) -> Any:
        Waiting.batches += 1
        if Waiting.batches == 2:
            stopped.wait()
        return super()._queue(batch, limits, again, stopped)


way = sys.argv.pop(1)
cpu_kernels.use()
if way == "fails":
    alignment.end_positions = failing
elif way == "no memory":
    alignment.end_positions = without_memory
elif way == "waiting":
    worker.Worker = Waiting  # type: ignore[misc]
elif way == "stuck":
    worker.Residency = Stuck  # type: ignore[misc]
main()
