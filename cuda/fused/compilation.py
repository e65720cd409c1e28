"""Compilation of kernels before their launches, and reports of those that were compiled only then.

Triton compiles a kernel at its first launch, once for each set of argument types, constants and options: a
variant. Variants are recorded by running operations for an assumed GPU: each launch is noted instead of run.
Any process can then compile them, without a GPU, into Triton's cache on disk, where launches find them.

Imports Triton, so only modules with kernels, and those that compile them, import this one.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.compiler.compiler import make_backend
from triton.runtime import JITFunction
from triton.runtime.build import platform_key
from triton.runtime.cache import triton_key

from cuda.fused.gpu_model import GpuModel, assume_gpu
from cuda.fused.toolchain import build_driver_extension

_PACKAGE = "cuda.fused."
# the state of Triton that recording changes is global
_recording = threading.Lock()


@dataclass(frozen=True)
class KernelVariant:
    """A kernel with the types and constants that it is compiled for.

    Args:
        module: import name of the kernel's module.
        name: name of the kernel in the module.
        specialization: types, constants and options, as Triton's `JITFunction.preload` takes them.
    """

    module: str
    name: str
    specialization: str

    def description(self) -> dict[str, Any]:
        """Return the types, constants and options by name."""
        found: dict[str, Any] = json.loads(self.specialization)
        return found


class _TargetDriver:
    """The part of a Triton driver that compilation needs, for a GPU that may not exist."""

    def __init__(self, gpu: GpuModel) -> None:
        major, minor = gpu.capability
        self._gpu, self._target = gpu, GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> GpuModel:
        """Return the key under which kernels keep what they have compiled."""
        return self._gpu

    def get_current_stream(self, device: GpuModel) -> int:
        """Return the default stream."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """Return the architecture to compile for."""
        return self._target


@contextlib.contextmanager
def _driver_for(gpu: GpuModel) -> Iterator[None]:
    """Let Triton compile for a GPU model in this process; nothing can be launched meanwhile."""
    config = triton.runtime.driver
    with _recording:
        # the public getter would open the driver
        previous = config._active
        config.set_active(_TargetDriver(gpu))
        try:
            yield
        finally:
            config._active = previous


@contextlib.contextmanager
def record_variants(gpu: GpuModel, found: Callable[[KernelVariant], None]) -> Iterator[None]:
    """Report the variants that operations launch inside a `with` block, once each, instead of launching them.

    Operations run as if all tensors were on a GPU of this model; the results of kernels are uninitialised.
    """
    known: set[KernelVariant] = set()

    def record(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        variant = KernelVariant(fn.module, fn.name, compile["specialization_data"])
        if variant not in known:
            known.add(variant)
            found(variant)
        return True  # which makes Triton skip compilation and launch

    with _driver_for(gpu), assume_gpu(gpu):
        previous, triton.knobs.runtime.jit_cache_hook = triton.knobs.runtime.jit_cache_hook, record
        try:
            yield
        finally:
            triton.knobs.runtime.jit_cache_hook = previous


def compile_variant(variant: KernelVariant, gpu: GpuModel) -> bool:
    """Compile a variant and its launcher into Triton's cache, unless they are there.

    Returns:
        True if it was not in the cache.
    """
    function = getattr(import_module(variant.module), variant.name)
    compiled: list[str] = []
    previous = triton.knobs.compilation.listener
    report_compilations(compiled.append)
    try:
        with _driver_for(gpu):
            kernel = function.preload(variant.specialization)
    finally:
        triton.knobs.compilation.listener = previous
    # the C extensions that load and launch it
    build_driver_extension()
    driver.CudaLauncher(kernel.src, kernel.metadata)
    return bool(compiled)


def load_compiler(gpu: GpuModel) -> None:
    """Find the versions of the compilers and of Triton, which are part of all keys in Triton's cache.

    This takes half a second, once in each process. Those forked later inherit the results.
    """
    triton_key()
    make_backend(_TargetDriver(gpu).get_current_target()).hash()
    platform_key()


def compute_cache_keys(module: ModuleType) -> None:
    """Compute the keys under which Triton caches the kernels that a module launches.

    Triton's key of a kernel depends on whether the keys of the functions that it calls were computed before.
    Processes that are to find each other's kernels in the cache must therefore compute the keys in the same
    order, here callees first.

    Args:
        module: a module with kernels; those of the modules of `cuda.fused` that it imports are included.
    """
    visited: set[int] = set()

    def visit(function: JITFunction[Any]) -> None:
        if not function.module.startswith(_PACKAGE) or id(function) in visited:
            return
        visited.add(id(function))
        names = set(function.fn.__code__.co_names)
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            members = vars(value) if isinstance(value, ModuleType) else {name: value}
            for member in sorted(names & members.keys()):
                if isinstance(members[member], JITFunction):
                    visit(members[member])
        _ = function.cache_key  # computed when first read

    for value in list(vars(module).values()):
        if isinstance(value, JITFunction):
            visit(value)
        elif isinstance(value, ModuleType) and value.__name__.startswith(_PACKAGE):
            compute_cache_keys(value)


def report_compilations(report: Callable[[str], None]) -> None:
    """Report each kernel that this process compiles from now on, instead of any earlier callback.

    A report is the kernel's name, and the types and constants that it is compiled for.
    """

    def listen(*, src: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            report(f"{src.name}({', '.join(_describe_arguments(src))})")

    triton.knobs.compilation.listener = listen


def _describe_arguments(source: Any) -> Iterator[str]:
    """Yield the type or value of each argument of a kernel's `ASTSource`; /16 marks those divisible by 16."""
    for index, (name, kind) in enumerate(source.signature.items()):
        value = source.constants.get((index,), kind)
        divisible = any(path[0] == index and attributes for path, attributes in source.attrs.items())
        yield f"{name}={getattr(value, 'value', value)}{'/16' if divisible else ''}"
