"""A disk cache of compiled kernels, for generated and hand-written kernels alike.

Kernels are described by `KernelSource`, and their Python functions, which import numba, are made only if they
have to be compiled. Generated source is written to a module whose file name contains a digest of the source,
because tracebacks and profilers show the lines of a file. Machine code is stored in the folder passed to
`set_cache_folder`.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from cuda.alignment.binary_kernel import BinaryKernel
from cuda.alignment.device import Device

_SUFFIX = ".cubin"
_lock = threading.RLock()
_kernels: dict[tuple[tuple[int, int], "KernelSource"], Any] = {}
_kernel_locks: dict[tuple[tuple[int, int], "KernelSource"], threading.Lock] = {}
_folder: Path | None = None


@dataclass(frozen=True)
class KernelSource:
    """A kernel that can be compiled.

    Args:
        identity: name that is unique among the kernels of this version of the package.
        name: name of the function.
        signature: numba signature of arrays and integers.
        launch_bounds: threads per block, and blocks that a multiprocessor must be able to hold.
        make: returns the function; may import numba, and raise OSError if a folder is not writable.
    """

    identity: str
    name: str
    signature: str
    launch_bounds: tuple[int, int]
    make: Callable[[], Callable[..., Any]] = field(compare=False)


def hand_written(module: str, name: str, signature: str, threads: int) -> KernelSource:
    """Describe the kernel with a name in a module, for blocks of up to `threads`."""

    def make() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function

    return KernelSource(f"{module}.{name}", name, signature, (threads, 1), make)


def set_cache_folder(folder: Path) -> None:
    """Store the machine code of all kernels in this folder, which is created when first needed."""
    global _folder
    _folder = folder


def generated_function(
    source: str, name: str, folder: Path, launch_bounds: tuple[int, int]
) -> Callable[..., Any]:
    """Write a generated module to disk, import it and return one of its functions.

    Args:
        source: Python source of the module.
        name: the function to return.
        folder: where the module is written; created if it does not exist.
        launch_bounds: the bounds it will be compiled with, which are part of the file name.

    Raises:
        OSError: the folder is not writable.
    """
    digest = hashlib.sha256(f"{source}{launch_bounds}{sources_digest()}".encode()).hexdigest()[:16]
    path = folder / f"{name}_{digest}.py"
    module_name = f"foldcli_kernel_{name}_{digest}"
    with _lock:
        if module_name in sys.modules:
            return getattr(sys.modules[module_name], name)
        if not path.exists():
            _write_atomically(path, source.encode())
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        return getattr(module, name)


def compiled_kernel(source: KernelSource) -> Any:
    """Load a kernel for the current GPU from the cache, or compile it.

    Raises:
        OSError: the kernel is generated, and its folder is not writable.
    """
    return _compiled_for(Device.current().capability, source)


def prepare_launch(kernel: Any, threads: int, shared_bytes: int) -> int:
    """Allow a kernel to use more dynamic shared memory than the default 48 KiB.

    Returns:
        Blocks that fit on a multiprocessor of the current GPU at once.

    Raises:
        RuntimeError: the GPU does not have that much shared memory.
    """
    blocks: int = kernel.blocks_per_multiprocessor(threads, shared_bytes)
    if not blocks:
        raise RuntimeError(f"no block of {threads} threads and {shared_bytes} bytes fits a multiprocessor")
    return blocks


@cache
def sources_digest() -> str:
    """Return a digest of the kernel sources of this package and the compiler versions."""
    digest = hashlib.sha256(_compiler_versions().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def binary_path(folder: Path, source: KernelSource, capability: tuple[int, int]) -> Path:
    """Return the cache file of a kernel's machine code for GPUs of a compute capability."""
    key = f"{source.identity} {source.signature} {source.launch_bounds} {sources_digest()}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return folder / f"{source.name}_sm{capability[0]}{capability[1]}_{digest}{_SUFFIX}"


def load_binary(path: Path, signature: str) -> BinaryKernel | None:
    """Load a kernel from a cache file; return None if it is missing or the driver rejects it."""
    try:
        name, _, code = path.read_bytes().partition(b"\n")
        return BinaryKernel(code, name.decode(), signature)
    except (OSError, ValueError):
        return None


def is_cached(source: KernelSource, capability: tuple[int, int], folder: Path) -> bool:
    """Return whether a folder has a kernel's machine code for GPUs of a compute capability."""
    return binary_path(folder, source, capability).is_file()


def compile_into(folder: Path, source: KernelSource, capability: tuple[int, int]) -> tuple[str, bytes]:
    """Compile a kernel for GPUs of a compute capability, and store its machine code in a folder.

    This machine need not have such a GPU.

    Returns:
        Name of the symbol, and cubin.

    Raises:
        OSError: the kernel is generated, and its folder is not writable.
        Exception: an error of the compiler, of any type.
    """
    name, code = _compile(source, capability)
    # if the folder is read-only, the next run compiles the kernel again
    with contextlib.suppress(OSError):
        _write_atomically(binary_path(folder, source, capability), name.encode() + b"\n" + code)
    return name, code


def load_compiler(capability: tuple[int, int]) -> None:
    """Import the compiler and use it once; the first use takes as long as the import."""
    from cuda.core import Linker  # noqa: F401
    from numba import cuda

    cuda.compile_ptx(_first_kernel, "void(int32[::1])", cc=capability)


def _first_kernel(numbers: Any) -> None:
    """Use the operations that most kernels use; never launched."""
    for k in range(numbers.shape[0]):
        numbers[k] = max(numbers[k], 0)


def _compile(source: KernelSource, capability: tuple[int, int]) -> tuple[str, bytes]:
    """Return the name of a kernel's symbol and its cubin."""
    from cuda.core import Linker, LinkerOptions, ObjectCode  # takes long to import, as numba does
    from numba import cuda

    ptx, _ = cuda.compile_ptx(
        source.make(), source.signature, cc=capability, launch_bounds=source.launch_bounds
    )
    entry = re.search(r"\.visible \.entry (\w+)", ptx)
    assert entry is not None
    options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}")
    linked = Linker(ObjectCode.from_ptx(ptx.encode()), options=options).link("cubin")
    return entry[1], bytes(linked.code)


def _compiled_for(capability: tuple[int, int], source: KernelSource) -> Any:
    key = capability, source
    if key not in _kernels:
        # a lock for each kernel, so that no thread waits for a kernel that it does not need
        with _lock:
            lock = _kernel_locks.setdefault(key, threading.Lock())
        with lock:
            if key not in _kernels:
                _kernels[key] = _load_or_compile(capability, source)
    return _kernels[key]


def _load_or_compile(capability: tuple[int, int], source: KernelSource) -> Any:
    if _folder is None:
        return BinaryKernel(*reversed(_compile(source, capability)), source.signature)
    kernel = load_binary(binary_path(_folder, source, capability), source.signature)
    if kernel is None:
        name, code = compile_into(_folder, source, capability)
        kernel = BinaryKernel(code, name, source.signature)
    return kernel


@cache
def _compiler_versions() -> str:
    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return ""

    return " ".join(
        map(version, ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "numba"))
    )


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that other processes see all of it or none; create its folder if needed.

    Raises:
        OSError: the folder is not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # unlike tempfile's, readable for others, as far as the umask allows: users may share a cache
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
