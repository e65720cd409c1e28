"""GPU memory for searches, and pinned host memory, from which the GPU copies asynchronously."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cuda.alignment import device as gpu
from msa.base.errors import OutOfGpuMemory

PINNED_BYTES = 4 * 2**20
"""Size of a buffer."""

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


class PinnedBuffer:
    """A buffer that is filled and sent to the GPU again and again; allocated when it is first filled."""

    def __init__(self) -> None:
        self._memory: np.ndarray | None = None
        self._sent = gpu.event()

    def memory(self) -> np.ndarray:
        """Wait until the last content has been sent, and return the memory, uint8 [PINNED_BYTES]."""
        self._sent.synchronize()
        if self._memory is None:
            self._memory = gpu.pinned_array(PINNED_BYTES, np.uint8)
        return self._memory

    def send(self, content: np.ndarray, destination: Any, stream: Any) -> None:
        """Queue the copy of a part of the memory to a device array of the same type and size."""
        destination.copy_to_device(content, stream=stream)
        self._sent.record(stream)
