"""Kernels as machine code, kept on disk and launched without the compiler.

numba needs a third of a second before it can load the first kernel that it has compiled, and 50 µs for each
launch. A kernel from here is there in a millisecond and is launched in 10 µs; what it takes is numba's.
"""

import contextlib
import ctypes
import hashlib
import os
import struct
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

_SUFFIX = ".cubin"
_WORDS = "_foldcli_words"
"""Attribute of a device array with what a launch needs to know: it costs as much to find as all the rest."""


class BinaryKernel:
    """A compiled kernel, to be launched as numba's are: kernel[blocks, threads, stream, shared bytes](…).

    Args:
        code: of one GPU's generation, or of several.
        name: of the kernel in it.
        signature: numba's: arrays and integers.

    Raises:
        ValueError: the driver does not take the code, or there is an argument of another type.
    """

    def __init__(self, code: bytes, name: str, signature: Any) -> None:
        from cuda.bindings import driver

        self._arguments: list[tuple[str, int] | None] = []
        for kind in signature.args:
            if hasattr(kind, "layout"):
                self._arguments.append((str(kind.dtype), kind.ndim))
            elif str(kind).startswith(("int", "uint", "bool")):
                self._arguments.append(None)
            else:
                raise ValueError(f"no kernel with an argument of type {kind}")
        result, library = driver.cuLibraryLoadData(code, [], [], 0, [], [], 0)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"cuLibraryLoadData: {result.name}")
        result, kernel = driver.cuLibraryGetKernel(library, name.encode())
        if result != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"cuLibraryGetKernel: {result.name}")
        self.code, self.name = code, name
        self.handle = int(kernel)
        words = sum(1 if kind is None else 5 + 2 * kind[1] for kind in self._arguments)
        self._values = struct.Struct(f"={words}q")
        self._function = driver.CUfunction(self.handle)
        self._launch = driver.cuLaunchKernel
        self._buffers: dict[int, tuple[Any, Any, int]] = {}

    def __getitem__(self, shape: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream, shared_bytes = (*shape, 0, 0)[:4]
        return _Launch(self, int(blocks), int(threads), getattr(stream, "handle", 0), int(shared_bytes))

    def launch(
        self, blocks: int, threads: int, stream: Any, shared_bytes: int, arguments: tuple[Any, ...]
    ) -> None:
        """Queue the kernel on a stream.

        Raises:
            TypeError: an argument is not of the kernel's type.
            RuntimeError: the driver refuses.
        """
        values: list[int] = []
        for kind, argument in zip(self._arguments, arguments, strict=True):
            if kind is None:
                values.append(int(argument))
                continue
            found, words = getattr(argument, _WORDS, None) or _described(argument)
            if found != kind:
                raise TypeError(f"{self.name} takes an array of {kind}, not of {found}")
            values += words
        buffer, _pointers, address = self._buffer()
        self._values.pack_into(buffer, 0, *values)
        (result,) = self._launch(
            self._function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, address, 0
        )
        if result:
            raise RuntimeError(f"launch of {self.name}: {result.name}")

    def _buffer(self) -> tuple[Any, Any, int]:
        """Room for the arguments, an array of pointers to each, and its address; one for each thread."""
        thread = threading.get_ident()
        found = self._buffers.get(thread)
        if found is None:
            buffer = ctypes.create_string_buffer(max(self._values.size, 8))
            start, count = ctypes.addressof(buffer), self._values.size // 8
            pointers = (ctypes.c_void_p * max(count, 1))(*(start + 8 * k for k in range(count)))
            found = self._buffers[thread] = buffer, pointers, ctypes.addressof(pointers)
        return found

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int) -> int:
        """Blocks that a multiprocessor of the current GPU holds at once; they may have so much shared memory.

        Raises:
            RuntimeError: the GPU has not that much.
        """
        from cuda.bindings import driver

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
        """Local memory of a thread on the current GPU: what registers do not hold."""
        from cuda.bindings import driver

        _, device = driver.cuCtxGetDevice()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        result, count = driver.cuKernelGetAttribute(attribute, driver.CUkernel(self.handle), device)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"local memory of {self.name}: {result.name}")
        return int(count)


def _described(array: Any) -> tuple[tuple[str, int], tuple[int, ...]]:
    """Type and dimensions of a device array, and the numbers that stand for it; kept with it.

    The numbers are two pointers that numba leaves null, elements, bytes of one, address, shape and strides.
    """
    pointer = array.device_ctypes_pointer.value or 0
    words = (0, 0, array.size, array.dtype.itemsize, pointer, *array.shape, *array.strides)
    described = (array.dtype.name, array.ndim), words
    setattr(array, _WORDS, described)
    return described


class _Launch:
    """A kernel with the shape of its launch."""

    __slots__ = ("_kernel", "_shape")

    def __init__(self, kernel: BinaryKernel, *shape: Any) -> None:
        self._kernel, self._shape = kernel, shape

    def __call__(self, *arguments: Any) -> None:
        self._kernel.launch(*self._shape, arguments)


@cache
def sources_digest() -> str:
    """A digest of all that kernels are made from, queries and GPU apart: our sources and the compiler."""
    digest = hashlib.sha256(_versions().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _versions() -> str:
    from importlib import metadata

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return ""

    return " ".join(map(version, ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvrtc", "numba")))


def binary_path(
    folder: Path,
    function: Callable[..., Any],
    signature: Any,
    launch_bounds: tuple[int, int],
    capability: tuple[int, int],
) -> Path:
    """Where the machine code of a kernel is kept for GPUs of a compute capability."""
    module = function.__module__
    made_from = f"{module} {function.__qualname__} {signature} {launch_bounds} {sources_digest()}"
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    return folder / f"{function.__name__}_sm{capability[0]}{capability[1]}_{digest}{_SUFFIX}"


def load_binary(path: Path, signature: Any) -> BinaryKernel | None:
    """The kernel in a file; None where there is none, or none that the driver takes."""
    try:
        name, _, code = path.read_bytes().partition(b"\n")
        return BinaryKernel(code, name.decode(), signature)
    except (OSError, ValueError):
        return None


def save_binary(path: Path, kernel: BinaryKernel) -> None:
    """Keep a kernel for the next run; where the folder cannot be written it is compiled anew."""
    with contextlib.suppress(OSError):
        write_whole(path, kernel.name.encode() + b"\n" + kernel.code)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all; its folder is made if it is not there.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(temporary).replace(path)
