"""The functions of the CUDA driver that searches call, through ctypes.

Importing NVIDIA's bindings, or numba, takes longer than searching a database with one query. This module does
not import numpy either, so that the driver starts while other modules are imported.
"""

import contextlib
import ctypes
import threading
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"

OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"

_OBJECT, _NUMBER = POINTER(c_void_p), POINTER(c_int)
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_NUMBER,),
    "cuDeviceGetCount": (_NUMBER,),
    "cuDeviceGet": (_NUMBER, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_NUMBER, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_OBJECT, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxGetDevice": (_NUMBER,),
    "cuCtxSynchronize": (),
    "cuCtxGetStreamPriorityRange": (_NUMBER, _NUMBER),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (_OBJECT, c_size_t),
    "cuMemFree_v2": (c_size_t,),
    "cuMemHostAlloc": (_OBJECT, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (c_size_t, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_size_t, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_size_t, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_size_t, c_size_t, c_void_p),
    "cuStreamCreateWithPriority": (_OBJECT, c_uint, c_int),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (_OBJECT, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuLibraryLoadData": (_OBJECT, c_char_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cuLibraryGetKernel": (_OBJECT, c_void_p, c_char_p),
    "cuKernelGetFunction": (_OBJECT, c_void_p),
    "cuKernelSetAttribute": (c_int, c_int, c_void_p, c_int),
    "cuKernelGetAttribute": (_NUMBER, c_int, c_void_p, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_NUMBER, c_void_p, c_int, c_size_t),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
}  # fmt: skip
"""Argument types of each function, as in cuda.h; device addresses are c_size_t, and c_void_p where a function
returns one. All return a CUresult."""

# numbers of attributes, as in cuda.h
MULTIPROCESSOR_COUNT, COMPUTE_MODE = 16, 20
CAPABILITY_MAJOR, CAPABILITY_MINOR, MAX_SHARED_BYTES_OPTIN = 75, 76, 97
"""Attributes of devices."""
SHARED_MODE = 0
"""Value of COMPUTE_MODE that allows several processes."""
LOCAL_SIZE_BYTES, MAX_DYNAMIC_SHARED_BYTES, PREFERRED_SHARED_CARVEOUT = 3, 8, 9
"""Attributes of kernels."""
NON_BLOCKING = 1
"""Flag of a stream that does not wait for the default stream."""


_contexts: dict[int, int] = {}
_contexts_lock = threading.Lock()


class DriverError(RuntimeError):
    """A failed call of the driver.

    Args:
        function: the function.
        name: name of its CUresult, such as "CUDA_ERROR_OUT_OF_MEMORY".
    """

    def __init__(self, function: str, name: str) -> None:
        self.function, self.name = function, name
        super().__init__(function, name)

    def __str__(self) -> str:
        return f"{self.function}: {self.name}"


@cache
def functions() -> dict[str, Any]:
    """Return the functions of PROTOTYPES by name.

    Raises:
        OSError: there is no driver.
        AttributeError: the driver lacks a function.
    """
    library = ctypes.CDLL(LIBRARY)
    found = {}
    for name, types in PROTOTYPES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, c_int
        found[name] = function
    return found


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver.

    Raises:
        DriverError: it fails.
        OSError, AttributeError: see `functions`.
    """
    status = functions()[name](*arguments)
    if status:
        raise DriverError(name, result_name(status))


def number(name: str, *arguments: Any) -> int:
    """Call a function whose first argument receives an int, and return that; raises like `call`."""
    result = c_int()
    call(name, ctypes.byref(result), *arguments)
    return result.value


def handle(name: str, *arguments: Any) -> int:
    """Call a function whose first argument receives a handle, and return that; raises like `call`."""
    result = c_void_p()
    call(name, ctypes.byref(result), *arguments)
    return result.value or 0


def release(name: str, address: int) -> None:
    """Release something with a function; nothing can be done about a failure."""
    with contextlib.suppress(DriverError):
        call(name, address)


def result_name(status: int) -> str:
    """Return the name of a CUresult."""
    get_name = ctypes.CDLL(LIBRARY).cuGetErrorName
    get_name.argtypes, get_name.restype = (c_int, POINTER(c_char_p)), c_int
    name = c_char_p()
    return name.value.decode() if not get_name(status, ctypes.byref(name)) and name.value else str(status)


def primary_context(gpu: int) -> int:
    """Start the driver, and return the primary context of a GPU, which is created on the first call.

    Raises:
        DriverError: there is no such GPU, or it cannot be opened.
        OSError, AttributeError: see `functions`.
    """
    with _contexts_lock:
        if gpu not in _contexts:
            call("cuInit", 0)
            _contexts[gpu] = handle("cuDevicePrimaryCtxRetain", number("cuDeviceGet", gpu))
        return _contexts[gpu]
