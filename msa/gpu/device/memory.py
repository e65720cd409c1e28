"""Allocation of GPU memory for searches, and what is left of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cuda.alignment import device as gpu
from msa.base.errors import OutOfGpuMemory

Allocate = Callable[[int, np.dtype[Any]], Any]
"""(elements, dtype) → device array of at least that many elements; raises OutOfGpuMemory."""


def allocate_on_gpu(count: int, dtype: np.dtype[Any]) -> Any:
    """Allocate a device array.

    Raises:
        OutOfGpuMemory: if the driver cannot provide the memory.
    """
    try:
        return gpu.device_array(max(count, 1), dtype)
    except Exception as error:  # the driver's, or the simulator's
        if is_out_of_memory(error):
            raise OutOfGpuMemory(max(count, 1) * dtype.itemsize) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any library reports that GPU memory is exhausted."""
    return isinstance(error, OutOfGpuMemory) or "OUT_OF_MEMORY" in str(error).upper().replace(" ", "_")


def free_bytes() -> int:
    """Return the free memory of the current GPU, as reported by the driver."""
    return gpu.memory_info()[0]
