"""A GPU memory pool whose allocations do not make the GPU wait, and streams that wait for no other stream.

The driver's cuMemFree waits for all work queued on the GPU. The filter of the next queries is queued while
earlier ones are aligned, so each array that the alignment frees would stall the GPU. Freed blocks are
therefore kept for reuse. Each thread has its own blocks and uses them on its own streams, so a block is
reused only after the work queued on it. The filter's thread frees an array only when its work is done.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver
from numba import cuda

from cuda.alignment.kernel_cache import SIMULATED
from msa.errors import OutOfGpuMemory

_MIN_BLOCK_BYTES = 512
_MIN_UNPOOLED_BYTES = 256 * 2**20
"""Minimum size of a block that is returned to the driver at once when it is freed, such as a database."""
_MIN_TRIMMED_BYTES = 32 * 2**20
"""Minimum size of a free block that is returned to the driver between searches."""
_STEPS_PER_OCTAVE = 8
"""Block sizes per power of two."""


Allocate = Callable[[int, np.dtype[Any]], Any]
"""(elements, dtype) → device array of at least that many elements; raises OutOfGpuMemory."""


def allocate_on_gpu(count: int, dtype: np.dtype[Any]) -> Any:
    """Allocate a device array.

    Raises:
        OutOfGpuMemory: if the driver cannot provide the memory.
    """
    try:
        return cuda.device_array(max(count, 1), dtype)
    except Exception as error:  # numba's and cuda-core's errors have no common base class
        if is_out_of_memory(error):
            raise OutOfGpuMemory(max(count, 1) * dtype.itemsize) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any library reports that GPU memory is exhausted."""
    return isinstance(error, OutOfGpuMemory) or "OUT_OF_MEMORY" in str(error).upper().replace(" ", "_")


def free_bytes() -> int:
    """Return the free memory of the current GPU, as reported by the driver."""
    return 0 if SIMULATED else int(cuda.current_context().get_memory_info()[0])


def new_stream(urgent: bool = False) -> Any:
    """Create a stream that waits for no other stream.

    Args:
        urgent: give its work priority over that of other streams.
    """
    if SIMULATED:
        return cuda.stream()
    _, least, greatest = driver.cuCtxGetStreamPriorityRange()
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    result, handle = driver.cuStreamCreateWithPriority(flags, greatest if urgent else least)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuStreamCreateWithPriority: {result.name}")
    return cuda.external_stream(int(handle))


def release_unused() -> None:
    """Return large free blocks to the driver; waits until the current GPU is idle."""
    manager = None if SIMULATED else cuda.current_context().memory_manager
    if isinstance(manager, _Pool):
        manager.trim(_MIN_TRIMMED_BYTES)


def use_pool() -> None:
    """Make numba use the pool; must be called before the first context is created."""
    if not SIMULATED:
        cuda.set_memory_manager(_Pool)


def _block_size(size: int) -> int:
    """Return the size of the block for an allocation: rounded up, by at most an eighth for large ones."""
    step = max(_MIN_BLOCK_BYTES, 1 << max(size - 1, 1).bit_length() - 1) // _STEPS_PER_OCTAVE
    step = max(step, _MIN_BLOCK_BYTES)
    return -(-size // step) * step


if SIMULATED:
    _Pool: Any = ()
else:

    class _Pool(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[no-redef]
        """numba's memory manager for one GPU."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # thread → block size → free blocks
            self._free: dict[int, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))

        interface_version = 1

        def initialize(self) -> None:
            """Prepare the manager; see numba's BaseCUDAMemoryManager."""
            if not self.deallocations.memory_capacity:
                self.deallocations.memory_capacity = self.get_memory_info().total

        def get_memory_info(self) -> Any:
            """Return free and total memory; see numba's BaseCUDAMemoryManager."""
            _, free, total = driver.cuMemGetInfo()
            return cuda.MemoryInfo(free=free, total=total)

        def memalloc(self, size: int) -> Any:
            """Allocate memory; see numba's BaseCUDAMemoryManager."""
            block = _block_size(size)
            free = self._free[threading.get_ident()][block]
            pointer = free.pop() if free else self._allocate(block)
            finish = _free_block(pointer) if block >= _MIN_UNPOOLED_BYTES else _keep_block(free, pointer)
            return cuda.MemoryPointer(weakref.proxy(self.context), pointer, size, finalizer=finish)

        def trim(self, min_size: int = 0) -> None:
            """Return free blocks of at least a size to the driver."""
            for sizes in list(self._free.values()):
                for size, blocks in list(sizes.items()):
                    while size >= min_size and blocks:
                        _free_block(blocks.pop())()

        def reset(self) -> None:
            """Forget all memory; see numba's BaseCUDAMemoryManager."""
            super().reset()
            self._free.clear()

        def _allocate(self, size: int) -> Any:
            for _ in range(2):
                result, pointer = driver.cuMemAlloc(size)
                if result == driver.CUresult.CUDA_SUCCESS:
                    return pointer
                if result != driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                    raise RuntimeError(f"cuMemAlloc of {size} bytes: {result.name}")
                self.trim()
            raise OutOfGpuMemory(size)


def _keep_block(free: list[Any], pointer: Any) -> Callable[[], None]:
    return lambda: free.append(pointer)


def _free_block(pointer: Any) -> Callable[[], None]:
    def free() -> None:
        driver.cuMemFree(pointer)

    return free
