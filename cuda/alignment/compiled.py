"""Compiled kernels from generated source, kept on disk between runs.

numba takes tracebacks and its cache from the file of a function, so the source is written to a module in a
folder of the caller's choice, whose name says what it was made from. Machine code is kept in the folder that
`keep_in` names, else by numba in `__pycache__` beside the source.
"""

import contextlib
import hashlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from cuda.alignment.binary import (
    BinaryKernel,
    binary_path,
    load_binary,
    save_binary,
    sources_digest,
    write_whole,
)

_lock = threading.Lock()


def generated_function(
    source: str, name: str, folder: Path, launch_bounds: tuple[int, int]
) -> Callable[..., Any]:
    """A function of a generated module.

    Args:
        source: of the module.
        name: of the function in it.
        folder: where the module is written; made if it is not there.
        launch_bounds: that it will be compiled with: numba's cache does not tell them apart.

    Raises:
        OSError: the folder cannot be written.
    """
    digest = hashlib.sha256(f"{source}{launch_bounds}{sources_digest()}".encode()).hexdigest()[:16]
    path = folder / f"{name}_{digest}.py"
    module_name = f"foldcli_kernel_{name}_{digest}"
    with _lock:
        if module_name in sys.modules:
            return getattr(sys.modules[module_name], name)
        if not path.exists():
            write_whole(path, source.encode())
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        return getattr(module, name)


_folder: Path | None = None
_mode = threading.local()


class NotKept(Exception):
    """A kernel has to be compiled, and that is not wanted now."""


def keep_in(folder: Path) -> None:
    """Keep kernels' machine code in a folder, also those that are not generated; made when it is needed."""
    global _folder
    _folder = folder


@contextlib.contextmanager
def kept_only() -> Iterator[None]:
    """In this thread, compile nothing: `compiled_kernel` raises NotKept instead."""
    _mode.kept_only = True
    try:
        yield
    finally:
        _mode.kept_only = False


def _capability() -> tuple[int, int]:
    from numba.core import config

    if config.ENABLE_CUDASIM:
        return 0, 0
    from cuda.bindings import driver

    result, device = driver.cuCtxGetDevice()
    # a thread that has not asked numba for anything yet has no context
    return _capability_of(int(device) if result == driver.CUresult.CUDA_SUCCESS else -1)


@cache
def _capability_of(device: int) -> tuple[int, int]:
    from numba import cuda

    chosen = cuda.get_current_device() if device < 0 else cuda.gpus[device]
    return tuple(chosen.compute_capability)


def kernels_identity() -> str:
    """Changes with all that kernels for the current GPU are made from, queries apart."""
    capability = _capability()
    return f"sm{capability[0]}{capability[1]}_{sources_digest()}"


def compiled_kernel(function: Callable[..., Any], signature: Any, launch_bounds: tuple[int, int]) -> Any:
    """Compile a kernel for the current GPU, or load it from the disk.

    Args:
        function: from `generated_function`, or of a module of ours.
        signature: numba's, of the arguments: arrays and integers.
        launch_bounds: threads of a block, and blocks that a multiprocessor is to hold at once.

    Returns:
        What is launched as numba's dispatchers are: a BinaryKernel.
    """
    return _compiled_for(_capability(), function, signature, launch_bounds)


@cache
def _compiled_for(
    capability: tuple[int, int],
    function: Callable[..., Any],
    signature: Any,
    launch_bounds: tuple[int, int],
) -> Any:
    from numba import cuda
    from numba.core import config

    with _lock:
        if config.ENABLE_CUDASIM:
            return cuda.jit(function)
        path = None
        if _folder is not None:
            path = binary_path(_folder, function, signature, launch_bounds, capability)
            kernel = load_binary(path, signature)
            if kernel is not None:
                return kernel
        if getattr(_mode, "kept_only", False):
            raise NotKept(function.__name__)
        try:
            # what is kept here need not be kept by numba too
            dispatcher = cuda.jit(signature, cache=path is None, launch_bounds=launch_bounds)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            dispatcher = cuda.jit(signature, launch_bounds=launch_bounds)(function)
        (compiled,) = dispatcher.overloads.values()
        kernel = BinaryKernel(compiled.library.get_cubin().code, compiled.entry_name, signature)
        if path is not None:
            save_binary(path, kernel)
        return kernel


def prepare_launch(kernel: Any, threads: int, shared_bytes: int) -> int:
    """Let a kernel have its dynamic shared memory on the current GPU.

    Args:
        kernel: from `compiled_kernel`.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block; without this call, no more than 48 KiB are allowed.

    Returns:
        Blocks that a multiprocessor holds at once.

    Raises:
        RuntimeError: the GPU has not that much shared memory.
    """
    from numba.core import config

    if config.ENABLE_CUDASIM:
        return 1
    blocks: int = kernel.blocks_per_multiprocessor(threads, shared_bytes)
    if not blocks:
        raise RuntimeError(f"no block of {threads} threads and {shared_bytes} bytes fits a multiprocessor")
    return blocks
