"""GPU memory that is taken and dropped without making the GPU wait, and streams that wait for no other.

The driver's cuMemFree waits for all that is queued on the GPU. With the filter of the next queries queued
while the last ones are aligned, each array that alignment drops would hold up everything. So blocks are kept
for the next who asks: each thread has blocks of its own, which it uses on streams of its own, so a block is
used anew only after what was queued on it. The filter's thread drops an array only when its work is done.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.core import config

SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]

_SMALLEST = 512
_WHOLE = 256 * 2**20
"""Blocks from this size on, such as a database, go back to the driver when they are dropped."""
_LARGE = 32 * 2**20
_STEPS = 8
"""Sizes of blocks per power of two."""


class OutOfGpuMemory(Exception):
    """An allocation on the GPU failed.

    Args:
        asked: bytes asked for.
    """

    def __init__(self, asked: int) -> None:
        self.asked = asked
        super().__init__(f"no {asked} bytes free on the GPU")


Allocate = Callable[[int, np.dtype[Any]], Any]
"""(elements, dtype) → device array of at least that many; raises OutOfGpuMemory."""


def allocate_on_gpu(count: int, dtype: np.dtype[Any]) -> Any:
    """A device array.

    Raises:
        OutOfGpuMemory: the driver has not that much.
    """
    try:
        return cuda.device_array(max(count, 1), dtype)
    except Exception as error:  # numba's and cuda-core's errors share no class
        if is_out_of_memory(error):
            raise OutOfGpuMemory(max(count, 1) * dtype.itemsize) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of whatever library, says that the GPU has no memory left."""
    return isinstance(error, OutOfGpuMemory) or "OUT_OF_MEMORY" in str(error).upper().replace(" ", "_")


def free_bytes() -> int:
    """What the driver says is free on the current GPU."""
    return 0 if SIMULATED else int(cuda.current_context().get_memory_info()[0])


def new_stream(urgent: bool = False) -> Any:
    """A stream that waits for no other.

    Args:
        urgent: its work goes before that of other streams.
    """
    if SIMULATED:
        return cuda.stream()
    from cuda.bindings import driver

    _, least, greatest = driver.cuCtxGetStreamPriorityRange()
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    result, handle = driver.cuStreamCreateWithPriority(flags, greatest if urgent else least)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuStreamCreateWithPriority: {result.name}")
    return cuda.external_stream(int(handle))


def release_unused() -> None:
    """Give large blocks that nobody uses back to the driver; the current GPU must be idle, or waits."""
    manager = None if SIMULATED else cuda.current_context().memory_manager
    if isinstance(manager, _Pool):
        manager.trim(_LARGE)


def use_pool() -> None:
    """Let numba take GPU memory from a pool; before the first context is made, or it has no effect."""
    if not SIMULATED:
        cuda.set_memory_manager(_Pool)


def _block_size(size: int) -> int:
    """Bytes of the block for a size, at most an eighth more."""
    step = max(_SMALLEST, 1 << max(size - 1, 1).bit_length() - 1) // _STEPS
    step = max(step, _SMALLEST)
    return -(-size // step) * step


if SIMULATED:
    _Pool: Any = ()
else:

    class _Pool(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[no-redef]
        """numba's memory manager for one GPU."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # thread → size → blocks
            self._free: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))

        interface_version = 1

        def initialize(self) -> None:
            if not self.deallocations.memory_capacity:
                self.deallocations.memory_capacity = self.get_memory_info().total

        def get_memory_info(self) -> Any:
            from cuda.bindings import driver

            _, free, total = driver.cuMemGetInfo()
            return cuda.MemoryInfo(free=free, total=total)

        def memalloc(self, size: int) -> Any:
            block = _block_size(size)
            free = self._free[threading.get_ident()][block]
            pointer = free.pop() if free else self._take(block)
            finish = _given_back(pointer) if block >= _WHOLE else _kept(free, pointer)
            return cuda.MemoryPointer(weakref.proxy(self.context), pointer, size, finalizer=finish)

        def trim(self, smallest: int = 0) -> None:
            """Give unused blocks of at least a size back to the driver."""
            for sizes in list(self._free.values()):
                for size, blocks in list(sizes.items()):
                    while size >= smallest and blocks:
                        _given_back(blocks.pop())()

        def reset(self) -> None:
            super().reset()
            self._free.clear()

        def _take(self, size: int) -> Any:
            from cuda.bindings import driver

            for _ in range(2):
                result, pointer = driver.cuMemAlloc(size)
                if result == driver.CUresult.CUDA_SUCCESS:
                    return pointer
                if result != driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                    raise RuntimeError(f"cuMemAlloc of {size} bytes: {result.name}")
                self.trim()
            raise OutOfGpuMemory(size)


def _kept(free: list[Any], pointer: Any) -> Callable[[], None]:
    return lambda: free.append(pointer)


def _given_back(pointer: Any) -> Callable[[], None]:
    def give_back() -> None:
        from cuda.bindings import driver

        driver.cuMemFree(pointer)

    return give_back
