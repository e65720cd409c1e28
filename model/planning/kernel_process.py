"""The process that compiles the network's kernels: it finds them, and forked workers compile them.

It never initialises CUDA, because a process that has done so cannot be forked.
"""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import torch

from cuda.fused.compilation import KernelVariant, compile_variant, load_compiler, record_variants
from cuda.fused.gpu_model import GpuModel, assume_gpu
from cuda.fused.toolchain import build_driver_extension, provide_driver_library
from model.layers.kernels import select_kernels
from model.planning.kernel_launches import NetworkLaunches
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.services.forks import forked_workers

# added to the niceness of the workers: a run needs the kernels of its first searches, and torch, sooner
_NICENESS = 10
# torch's operations between the kernels are tiny
_TORCH_THREADS = 2


class Compiler:
    """A handler that compiles kernels, and reports a `CompilationStatus` after each change."""

    def __init__(self, report: Callable[[CompilationStatus], None]) -> None:
        self._report = report
        # the process and its workers end soon
        gc.disable()

    def compile(self, request: KernelRequest) -> None:
        """Compile kernels; the last report tells the first error."""
        gpu = GpuModel(request.gpu_name, request.capability)
        with assume_gpu(gpu):
            kernels = select_kernels("fused", "cpu")
        # forked workers inherit what these load
        provide_driver_library()
        load_compiler(gpu)
        progress = _Progress(self._report)
        with forked_workers(request.processes, _NICENESS) as pool:
            # fork all workers now: later this thread holds locks that they would inherit
            pool.submit(build_driver_extension)

            def queue(variant: KernelVariant) -> None:
                progress.follow(partial(pool.submit, compile_variant, variant, gpu))

            torch.set_num_threads(_TORCH_THREADS)
            dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[request.precision]
            with record_variants(gpu, queue), torch.inference_mode():
                networks = [NetworkLaunches(network, dtype, kernels) for network in request.networks]
                for network in networks:
                    for launch in network.calls():
                        launch()
            progress.wait()


class _Progress:
    """The status of the compilation, reported whenever it changes; the pool's thread reports results."""

    def __init__(self, report: Callable[[CompilationStatus], None]) -> None:
        self._report = report
        self._changed = threading.Condition()
        self._status = CompilationStatus()

    def follow(self, submit: "Callable[[], Future[bool]]") -> None:
        """Submit a kernel to the workers, count it, and report when it is done."""
        self._update(total=1)
        try:
            submit().add_done_callback(self._finish)
        except BrokenProcessPool as error:
            self._fail(error)

    def _finish(self, compilation: "Future[bool]") -> None:
        """Count a kernel that is in the cache now, or could not be compiled."""
        if (error := compilation.exception()) is not None:
            self._fail(error)
        else:
            self._update(done=1, compiled=int(compilation.result()))

    def _fail(self, error: BaseException) -> None:
        """Count a kernel that could not be compiled."""
        if isinstance(error, BrokenProcessPool):
            # all unfinished kernels fail with this error
            message = "the compiler has crashed"
        else:
            message = f"{type(error).__name__}: {error}".splitlines()[0]
        self._update(done=1, error=message)

    def wait(self) -> None:
        """Wait until all kernels are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._status.done == self._status.total)

    def _update(self, done: int = 0, total: int = 0, compiled: int = 0, error: str = "") -> None:
        with self._changed:
            old = self._status
            self._status = CompilationStatus(
                old.done + done, old.total + total, old.compiled + compiled, old.error or error
            )
            self._report(self._status)
            self._changed.notify_all()
