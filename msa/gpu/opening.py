"""Opening a GPU quickly: the driver starts while Python imports what uses it."""

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterator

from msa.gpu.devices import Gpu, find_gpu


def open_gpu(number: int) -> Gpu:
    """`find_gpu`, of which the driver's part, a fifth of a second, runs beside the import of numba.

    Raises:
        GpuUnavailable: it cannot be used.
    """
    threading.Thread(target=open_context, args=(number,), daemon=True).start()
    return find_gpu(number)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """For imports: what is imported stays, and a sixth of the time would go into looking for what can go."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


def open_context(number: int) -> bool:
    """Start the driver and the GPU; False if that fails, which is found again, and said, by `find_gpu`."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    if driver.cuInit(0):
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(device), number):
        return False
    return not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
