"""Pinned host memory, from which the GPU copies asynchronously."""

from typing import Any

import numpy as np

from cuda.alignment import device as gpu

PINNED_BYTES = 4 * 2**20
"""Size of a buffer."""


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
