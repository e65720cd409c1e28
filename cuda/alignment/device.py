"""Arrays, streams and events on a GPU, and the current GPU of a thread.

The names are those of numba.cuda, but everything goes through the driver: numba is imported only to compile a
kernel.

The memory of freed arrays is kept for reuse (memory_pool.py).
"""

import ctypes
import math
import threading
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cuda import driver
from cuda.alignment.memory_pool import MemoryPool
from cuda.driver import call, handle, number

_MIN_TRIMMED_BYTES = 32 * 2**20
"""Minimum size of an unused segment that `release_unused` returns to the driver."""
_NAME_BYTES = 256

_INTEGER_MAXIMUM_CAPABILITY = (9, 0)
_SHARED_KIB = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227, (11, 0): 227}
"""Maximum shared memory per block by compute capability (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""
_MIN_SHARED_KIB = 99
"""Maximum shared memory per block of all other GPUs from compute capability 8.0 on."""

_thread = threading.local()


@dataclass(frozen=True)
class Device:
    """A GPU and the properties that launches depend on.

    Args:
        number: index among the GPUs visible to this process.
        name: as reported by the driver.
        capability: compute capability.
        multiprocessors: number of multiprocessors.
        shared_bytes: maximum shared memory per block.
    """

    number: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int

    @classmethod
    def current(cls) -> "Device":
        """Return the GPU that this thread uses."""
        return device_properties(current_device())

    @classmethod
    def of_architecture(cls, name: str, capability: tuple[int, int]) -> "Device":
        """Return a GPU that this machine need not have, to compile kernels for.

        Args:
            name: as the driver reports it, such as "NVIDIA H200"; it selects tuned launches.
            capability: compute capability.
        """
        return cls(-1, name, capability, 0, 1024 * _SHARED_KIB.get(capability, _MIN_SHARED_KIB))

    @property
    def integer_maximum(self) -> bool:
        """True if the GPU has maxima of packed 16-bit integers."""
        return self.capability >= _INTEGER_MAXIMUM_CAPABILITY

    def grid(self, blocks_per_multiprocessor: int, threads: int) -> tuple[int, int]:
        """Return the blocks and threads of a launch that fills all multiprocessors."""
        return blocks_per_multiprocessor * self.multiprocessors, threads


class Stream:
    """A queue of work on a GPU."""

    def __init__(self, flags: int = 0, priority: int = 0) -> None:
        current_device()
        self.handle = handle("cuStreamCreateWithPriority", flags, priority)

    def synchronize(self) -> None:
        """Wait for all work queued so far."""
        call("cuStreamSynchronize", self.handle)


class Event:
    """A point in the work of a stream."""

    def __init__(self) -> None:
        current_device()
        self._handle = handle("cuEventCreate", 0)
        weakref.finalize(self, driver.release, "cuEventDestroy_v2", self._handle).atexit = False

    def record(self, stream: Any = 0) -> None:
        """Queue the event on a stream."""
        call("cuEventRecord", self._handle, stream_handle(stream))

    def wait(self, stream: Any = 0) -> None:
        """Make later work on a stream wait for the event."""
        call("cuStreamWaitEvent", stream_handle(stream), self._handle, 0)

    def synchronize(self) -> None:
        """Wait for the event; returns at once if it was never recorded."""
        call("cuEventSynchronize", self._handle)

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds from this event to a later one."""
        result = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(result), self._handle, end._handle)
        return result.value


class DeviceArray:
    """A contiguous array in the memory of a GPU.

    Args:
        memory: owner of the memory; kept as long as the array.
        address: of the first element.
        shape: numbers of elements.
        dtype: of the elements.
    """

    def __init__(self, memory: Any, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._memory, self.address, self.shape, self.dtype = memory, address, shape, dtype
        self.ndim, self.size = len(shape), math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next in each dimension."""
        return tuple(self.dtype.itemsize * math.prod(self.shape[k + 1 :]) for k in range(self.ndim))

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        """The address, as numba's arrays have it."""
        return ctypes.c_void_p(self.address)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> "DeviceArray":
        """Return a view: [a:b] of a vector, [k] or [k, a:b] of a matrix."""
        if isinstance(key, slice) and self.ndim == 1:
            start, stop, step = key.indices(self.size)
            if step != 1:
                raise IndexError("device arrays have no steps")
            address = self.address + start * self.dtype.itemsize
            return DeviceArray(self._memory, address, (max(stop - start, 0),), self.dtype)
        row, rest = key if isinstance(key, tuple) else (key, slice(None))
        if self.ndim != 2 or not 0 <= row < self.shape[0]:
            raise IndexError(f"{key} of a device array of shape {self.shape}")
        address = self.address + row * self.shape[1] * self.dtype.itemsize
        return DeviceArray(self._memory, address, (self.shape[1],), self.dtype)[rest]

    def reshape(self, *shape: int) -> "DeviceArray":
        """Return a view with another shape."""
        if math.prod(shape) != self.size:
            raise ValueError(f"{self.size} elements do not have shape {shape}")
        return DeviceArray(self._memory, self.address, shape, self.dtype)

    def view(self, dtype: Any) -> "DeviceArray":
        """Return a view of a vector with another type."""
        kind = np.dtype(dtype)
        return DeviceArray(self._memory, self.address, (self.nbytes // kind.itemsize,), kind)

    def copy_to_device(self, array: np.ndarray, stream: Any = None) -> None:
        """Copy an array of the same type and size here; with a stream, queue the copy there."""
        if not array.size:
            return
        # the driver returns when it has read pageable memory
        source = np.ascontiguousarray(array)
        if source.dtype != self.dtype or source.size != self.size:
            raise ValueError(f"cannot copy {source.size} {source.dtype} to {self.size} {self.dtype}")
        address = source.ctypes.data
        if stream:
            call("cuMemcpyHtoDAsync_v2", self.address, address, self.nbytes, stream_handle(stream))
        else:
            call("cuMemcpyHtoD_v2", self.address, address, self.nbytes)

    def copy_to_host(self, out: np.ndarray | None = None, stream: Any = None) -> np.ndarray:
        """Copy this array to a new or given contiguous one; with a stream, queue the copy there."""
        copy = np.empty(self.shape, self.dtype) if out is None else out
        if copy.dtype != self.dtype or copy.size != self.size or not copy.flags.c_contiguous:
            raise ValueError(f"cannot copy {self.size} {self.dtype} to {copy.size} {copy.dtype}")
        if self.nbytes:
            if stream:
                arguments = copy.ctypes.data, self.address, self.nbytes, stream_handle(stream)
                call("cuMemcpyDtoHAsync_v2", *arguments)
            else:
                call("cuMemcpyDtoH_v2", copy.ctypes.data, self.address, self.nbytes)
        return copy


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a stream of this module or of numba; 0 for the default stream."""
    if isinstance(stream, Stream):
        return stream.handle
    return int(getattr(stream, "handle", stream) or 0)


def select_device(gpu: int) -> None:
    """Make this thread use the primary context of a GPU, which is created if necessary.

    Raises:
        DriverError: there is no such GPU, or it cannot be opened.
    """
    call("cuCtxSetCurrent", driver.primary_context(gpu))
    _thread.device = gpu


def current_device() -> int:
    """Return the number of the GPU that this thread uses: the first one unless it has selected another."""
    if not hasattr(_thread, "device"):
        select_device(0)
    device: int = _thread.device
    return device


@cache
def device_properties(gpu: int) -> Device:
    """Return the properties of a GPU; the driver must have been started."""
    device = number("cuDeviceGet", gpu)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    call("cuDeviceGetName", name, _NAME_BYTES, device)
    major, minor, multiprocessors, shared_bytes = (
        number("cuDeviceGetAttribute", attribute, device)
        for attribute in (
            driver.CAPABILITY_MAJOR, driver.CAPABILITY_MINOR, driver.MULTIPROCESSOR_COUNT,
            driver.MAX_SHARED_BYTES_OPTIN,
        )
    )  # fmt: skip
    return Device(gpu, name.value.decode(), (major, minor), multiprocessors, shared_bytes)


def synchronize() -> None:
    """Wait for all work on the current GPU."""
    current_device()
    call("cuCtxSynchronize")


def memory_info() -> tuple[int, int]:
    """Return the free and the total memory of the current GPU, in bytes, as reported by the driver."""
    current_device()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def new_stream(urgent: bool = False) -> Any:
    """Create a stream that waits for no other stream."""
    current_device()
    least, greatest = ctypes.c_int(), ctypes.c_int()
    call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    return Stream(driver.NON_BLOCKING, greatest.value if urgent else least.value)


def release_unused() -> None:
    """Return large unused segments of the current GPU to the driver; waits until the GPU is idle."""
    _pool(current_device()).trim(_MIN_TRIMMED_BYTES)


def reserve(size: int) -> None:
    """Allocate memory for later arrays of this thread on the current GPU, in bytes, if there is enough."""
    _pool(current_device()).reserve(size)


def pinned_array(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Allocate host memory from which the GPU copies without the driver's help."""
    current_device()
    kind = np.dtype(dtype)
    bytes_ = int(np.prod(shape)) * kind.itemsize
    address = handle("cuMemHostAlloc", max(bytes_, 1), 0)
    memory = (ctypes.c_byte * bytes_).from_address(address)
    weakref.finalize(memory, driver.release, "cuMemFreeHost", address).atexit = False
    return np.frombuffer(memory, kind).reshape(shape)


def device_array(count: int, dtype: Any) -> DeviceArray:
    """Allocate a vector.

    Raises:
        DriverError: there is not enough memory.
    """
    kind = np.dtype(dtype)
    memory = _pool(current_device()).allocate(max(count * kind.itemsize, 1))
    return DeviceArray(memory, memory.address, (count,), kind)


def to_device(array: np.ndarray, stream: Any = None) -> DeviceArray:
    """Copy an array to the GPU; with a stream, queue the copy there."""
    copy = device_array(array.size, array.dtype).reshape(*array.shape)
    copy.copy_to_device(array, stream=stream)
    return copy


@cache
def _pool(gpu: int) -> MemoryPool:
    return MemoryPool()


event: Any = Event
stream: Any = Stream
