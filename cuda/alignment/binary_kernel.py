"""Kernels loaded from machine code and launched through the driver, without numba's dispatcher.

numba needs a third of a second to load its first compiled kernel and 50 µs per launch. A `BinaryKernel` loads
in a millisecond and launches in 10 µs. It takes arguments in numba's own calling convention.
"""

import ctypes
import re
import struct
import threading
from collections.abc import Callable
from typing import Any

from cuda import driver
from cuda.alignment.device import stream_handle
from cuda.driver import DriverError, call, handle, number

_DESCRIPTION = "_foldcli_description"
"""Attribute of an array that caches the result of `_describe_array`, which takes as long as a launch."""


class BinaryKernel:
    """A compiled kernel with numba's launch syntax: kernel[blocks, threads, stream, shared_bytes](…).

    Args:
        code: cubin or fatbin.
        name: symbol name of the kernel in `code`.
        signature: numba signature of arrays and integers, such as "void(int32[::1], int64)".

    Raises:
        ValueError: the driver rejects the code, or an argument has an unsupported type.
    """

    def __init__(self, code: bytes, name: str, signature: str) -> None:
        self._parameters = parameters(signature)
        try:
            library = handle("cuLibraryLoadData", code, None, None, 0, None, None, 0)
            self.handle = handle("cuLibraryGetKernel", library, name.encode())
            # loads the kernel now instead of at its first launch
            handle("cuKernelGetFunction", self.handle)
        except DriverError as error:
            raise ValueError(str(error)) from error
        self.code, self.name = code, name
        words = sum(1 if kind is None else 5 + 2 * kind[1] for kind in self._parameters)
        self._packer = struct.Struct(f"={words}q")
        self._launch = driver.functions()["cuLaunchKernel"]
        self._buffers: dict[int, tuple[Any, Any, int]] = {}

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream, shared_bytes = (*configuration, 0, 0)[:4]
        return _Launcher(self, int(blocks), int(threads), stream_handle(stream), int(shared_bytes))

    def launch(
        self, blocks: int, threads: int, stream: Any, shared_bytes: int, arguments: tuple[Any, ...]
    ) -> None:
        """Queue the kernel on a stream.

        Raises:
            TypeError: an argument does not have the type of the signature.
            RuntimeError: the driver rejects the launch.
        """
        values: list[int] = []
        for kind, argument in zip(self._parameters, arguments, strict=True):
            if kind is None:
                values.append(int(argument))
                continue
            found, words = getattr(argument, _DESCRIPTION, None) or _describe_array(argument)
            if found != kind:
                raise TypeError(f"{self.name} takes an array of {kind}, not of {found}")
            values += words
        buffer, _pointers, address = self._argument_buffer()
        self._packer.pack_into(buffer, 0, *values)
        status = self._launch(self.handle, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, address, None)
        if status:
            raise RuntimeError(f"launch of {self.name}: {driver.result_name(status)}")

    def _argument_buffer(self) -> tuple[Any, Any, int]:
        """Return this thread's argument buffer, the pointers to its words, and their address."""
        thread = threading.get_ident()
        found = self._buffers.get(thread)
        if found is None:
            buffer = ctypes.create_string_buffer(max(self._packer.size, 8))
            start, count = ctypes.addressof(buffer), self._packer.size // 8
            pointers = (ctypes.c_void_p * max(count, 1))(*(start + 8 * k for k in range(count)))
            found = self._buffers[thread] = buffer, pointers, ctypes.addressof(pointers)
        return found

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int) -> int:
        """Return how many blocks fit on a multiprocessor of the current GPU at once.

        Also allows the kernel to use `shared_bytes` of dynamic shared memory per block.

        Raises:
            DriverError: the GPU does not have that much shared memory.
        """
        device = number("cuCtxGetDevice")
        for attribute, value in (
            (driver.MAX_DYNAMIC_SHARED_BYTES, shared_bytes),
            (driver.PREFERRED_SHARED_CARVEOUT, 100),
        ):
            call("cuKernelSetAttribute", attribute, value, self.handle, device)
        try:
            return number("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle, threads, shared_bytes)
        except DriverError:
            return 0

    @property
    def local_bytes(self) -> int:
        """Local memory per thread on the current GPU; non-zero if registers spill."""
        return number("cuKernelGetAttribute", driver.LOCAL_SIZE_BYTES, self.handle, number("cuCtxGetDevice"))


def parameters(signature: str) -> list[tuple[str, int] | None]:
    """Return dtype and dimensions of each parameter of a signature that is an array, None for an integer.

    Raises:
        ValueError: a parameter has another type.
    """
    found: list[tuple[str, int] | None] = []
    for kind, dimensions in re.findall(r"(\w+)(\[[^\]]*\])?[,)]", signature):
        if dimensions:
            found.append((kind, dimensions.count(",") + 1))
        elif kind.startswith(("int", "uint", "bool")):
            found.append(None)
        else:
            raise ValueError(f"a kernel argument of type {kind} is not supported")
    return found


def _describe_array(array: Any) -> tuple[tuple[str, int], tuple[int, ...]]:
    """Return the type of a device array and the 64-bit words by which it is passed; cache both on the array.

    The words follow numba's array struct: two null pointers, number of elements, bytes per element, address,
    shape and strides.
    """
    pointer = array.device_ctypes_pointer.value or 0
    words = (0, 0, array.size, array.dtype.itemsize, pointer, *array.shape, *array.strides)
    description = (array.dtype.name, array.ndim), words
    setattr(array, _DESCRIPTION, description)
    return description


class _Launcher:
    """A kernel with a launch configuration."""

    __slots__ = ("_configuration", "_kernel")

    def __init__(self, kernel: BinaryKernel, *configuration: Any) -> None:
        self._kernel, self._configuration = kernel, configuration

    def __call__(self, *arguments: Any) -> None:
        self._kernel.launch(*self._configuration, arguments)
