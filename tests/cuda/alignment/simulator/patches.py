"""Replacements for what numba's simulator lacks, by the module that is changed after its import.

The simulator runs kernels as Python functions, each thread as a host thread.
"""

import threading
from collections.abc import Callable
from typing import Any

from numba import cuda

# the simulator runs one kernel at a time
_one_kernel = threading.RLock()


def _device(module: Any) -> None:
    simulated = module.Device(0, "simulator", (9, 0), 1, 2**18)
    module.Device.current = lambda: simulated
    # blocks of one warp, as shuffles are barriers of the block; two blocks, so that they share work
    module.Device.grid = lambda self, blocks, threads: (2, 32)
    module.device_array, module.to_device, module.pinned_array = (
        cuda.device_array, cuda.to_device, cuda.pinned_array,
    )  # fmt: skip
    # its events have no times
    cuda.event.elapsed_time = lambda self, event: 1.0
    module.event, module.stream, module.new_stream = (
        cuda.event,
        cuda.stream,
        lambda urgent=False: cuda.stream(),
    )
    module.select_device, module.synchronize = cuda.select_device, cuda.synchronize
    module.memory_info = lambda: (0, 0)
    module.stream_handle = lambda stream: 0
    module.release_unused = lambda: None
    module.reserve = lambda size: None


def _kernel_cache(module: Any) -> None:
    module.prepare_launch = lambda kernel, threads, shared_bytes: 1
    module.is_cached = lambda source, capability, folder: True
    module.load_compiler = lambda capability: None
    module._load_or_compile = lambda capability, source: cuda.jit(source.make())


def _runtime(module: Any) -> None:
    module.PreparedKernel.spilled_bytes = 0


def _signatures(module: Any) -> None:
    module.THREADS = module.WALK_THREADS = 4
    make = module.row_kernel_source
    module.row_kernel_source = lambda kind, shape, folder: make(kind, shape, None)


def _plan(module: Any) -> None:
    module.available_shapes = lambda: module.PLAIN


def _selector(module: Any) -> None:
    jit = module.compiled_kernel

    class FewThreads:
        def __init__(self, kernel: Any) -> None:
            self._kernel = jit(kernel)

        def __getitem__(self, launch: tuple[int, int, Any]) -> Callable[..., None]:
            blocks, _, stream = launch
            return self._kernel[blocks, 4, stream]

    module.compiled_kernel = FewThreads


def _filtering(module: Any) -> None:
    queue = module.BatchFilter.queue

    def locked(*arguments: Any) -> None:
        with _one_kernel:
            queue(*arguments)

    module.BatchFilter.queue = locked


def _local_worker(module: Any) -> None:
    submit = module.LocalWorker.submit_alignment

    def submit_locked(self: Any, work: Callable[[], Any]) -> Any:
        def locked() -> Any:
            with _one_kernel:
                return work()

        return submit(self, locked)

    module.LocalWorker.submit_alignment = submit_locked


def _devices(module: Any) -> None:
    def find_gpu(number: int = 0) -> Any:
        if number:
            raise module.GpuUnavailable(f"there is no GPU number {number}: the simulator has one")
        return module.Gpu(0, "numba's simulator", (9, 0), (0, 0), (0, 0), 2**30, 2**30)

    module.find_gpu = find_gpu


def _opening(module: Any) -> None:
    module.open_in_background = lambda device: None


PATCHES: dict[str, Callable[[Any], None]] = {
    "cuda.alignment.device": _device,
    "cuda.alignment.kernel_cache": _kernel_cache,
    "cuda.alignment.gapless.runtime": _runtime,
    "cuda.alignment.smith_waterman.signatures": _signatures,
    "cuda.alignment.smith_waterman.plan": _plan,
    "cuda.alignment.top_k.selector": _selector,
    "msa.gpu.worker.filtering": _filtering,
    "msa.gpu.worker.local_worker": _local_worker,
    "msa.gpu.device.devices": _devices,
    "msa.gpu.device.cuda_context": _opening,
}
