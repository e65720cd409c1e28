"""A GPU's process under the simulator, with the CPU's kernels: child.py WAY SOCKET [module search path …].

WAY is "works", or what goes wrong: "fails" and "no memory" when scores are asked for, "stuck" at the second
batch of queries.
"""

import sys
import threading
from typing import Any

import cpu_kernels
import numpy as np

from msa.gpu import alignment, worker
from msa.gpu.memory import OutOfGpuMemory
from msa.gpu.process import main
from msa.gpu.residency import Residency


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


way = sys.argv.pop(1)
cpu_kernels.use()
if way == "fails":
    alignment.end_positions = failing
elif way == "no memory":
    alignment.end_positions = without_memory
elif way == "stuck":
    worker.Residency = Stuck  # type: ignore[misc]
main()
