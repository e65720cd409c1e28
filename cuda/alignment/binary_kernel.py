"""Kernels loaded from machine code and launched through the driver, without numba's dispatcher.

numba needs a third of a second to load its first compiled kernel and 50 µs per launch. A `BinaryKernel` loads
in a millisecond and launches in 10 µs. It takes arguments in numba's own calling convention.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

_DESCRIPTION = "_foldcli_description"
"""Attribute of an array that caches its type and launch words; computing them takes as long as a launch."""


class BinaryKernel:
    """A compiled kernel with numba's launch syntax: kernel[blocks, threads, stream, shared_bytes](…).

    Args:
        code: cubin or fatbin.
        name: symbol name of the kernel in `code`.
        signature: numba signature of arrays and integers.

    Raises:
        ValueError: if the driver rejects the code, or an argument has an unsupported type.
    """

    def __init__(self, code: bytes, name: str, signature: Any) -> None:
        # (dtype, ndim) of an array argument, None for an integer
        self._parameters: list[tuple[str, int] | None] = []
        for kind in signature.args:
            if hasattr(kind, "layout"):
                self._parameters.append((str(kind.dtype), kind.ndim))
            elif str(kind).startswith(("int", "uint", "bool")):
                self._parameters.append(None)
            else:
                raise ValueError(f"a kernel argument of type {kind} is not supported")
        result, library = driver.cuLibraryLoadData(code, [], [], 0, [], [], 0)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"cuLibraryLoadData: {result.name}")
        result, kernel = driver.cuLibraryGetKernel(library, name.encode())
        if result != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"cuLibraryGetKernel: {result.name}")
        self.code, self.name = code, name
        self.handle = int(kernel)
        words = sum(1 if kind is None else 5 + 2 * kind[1] for kind in self._parameters)
        self._packer = struct.Struct(f"={words}q")
        self._function = driver.CUfunction(self.handle)
        self._launch = driver.cuLaunchKernel
        self._buffers: dict[int, tuple[Any, Any, int]] = {}

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream, shared_bytes = (*configuration, 0, 0)[:4]
        return _Launcher(self, int(blocks), int(threads), getattr(stream, "handle", 0), int(shared_bytes))

    def launch(
        self, blocks: int, threads: int, stream: Any, shared_bytes: int, arguments: tuple[Any, ...]
    ) -> None:
        """Queue the kernel on a stream.

        Raises:
            TypeError: if an argument does not have the type of the signature.
            RuntimeError: if the driver rejects the launch.
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
        (result,) = self._launch(
            self._function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, address, 0
        )
        if result:
            raise RuntimeError(f"launch of {self.name}: {result.name}")

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
            RuntimeError: if the GPU does not have that much shared memory.
        """
        _, device = driver.cuCtxGetDevice()
        names, handle = driver.CUfunction_attribute, driver.CUkernel(self.handle)
        for attribute, value in (
            (names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes),
            (names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100),
        ):
            (result,) = driver.cuKernelSetAttribute(attribute, value, handle, device)
            if result != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{shared_bytes} bytes of shared memory per block: {result.name}")
        result, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self._function, threads, shared_bytes
        )
        return int(blocks) if result == driver.CUresult.CUDA_SUCCESS else 0

    @property
    def local_bytes(self) -> int:
        """Local memory per thread on the current GPU; non-zero if registers spill."""
        _, device = driver.cuCtxGetDevice()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        result, count = driver.cuKernelGetAttribute(attribute, driver.CUkernel(self.handle), device)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"local memory of {self.name}: {result.name}")
        return int(count)


def _describe_array(array: Any) -> tuple[tuple[str, int], tuple[int, ...]]:
    """Return the type of a device array and its launch words, and cache both on the array.

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
