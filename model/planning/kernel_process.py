"""The process that compiles the network's kernels: it finds them, and forked workers compile them.

It never initialises CUDA, because a process that has done so cannot be forked. It reads a `KernelRequest`
from standard input, and writes a `CompilationStatus` as a line of JSON to standard output after each change.
"""

import gc
import heapq
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from typing import TYPE_CHECKING

from cuda.fused.toolchain import build_driver_extension, load_toolchain
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.child_process import end_with_parent

if TYPE_CHECKING:
    from cuda.fused.compilation import KernelVariant

# added to the niceness of the workers: a run needs the kernels of its first searches, and torch, sooner
_NICENESS = 10
# torch's operations between the kernels are tiny
_TORCH_THREADS = 2
# kernels that take more than a second of processor time, which are compiled first
_SLOW_KERNELS = (
    "attend_blocks",
    "attention_kernel",
    "finish_kernel",
    "outer_product_kernel",
    "transition_kernel",
)


def main() -> None:
    """Compile the kernels of the request on standard input."""
    # the process and its workers end soon
    gc.disable()
    with ThreadPoolExecutor(1) as background:
        toolchain = background.submit(load_toolchain)
        # importing torch takes as long, and is the work here
        import torch

        from cuda.fused.compilation import compile_variant, load_compiler, record_variants
        from cuda.fused.gpu_model import GpuModel, assume_gpu
        from model.layers.kernels import select_kernels
        from model.planning.kernel_launches import NetworkLaunches

        toolchain.result()
    line = sys.stdin.readline()
    if not line:
        return
    request = KernelRequest.from_json(line)
    gpu = GpuModel(request.gpu_name, request.capability)
    with assume_gpu(gpu):
        kernels = select_kernels("fused", "cpu")
    load_compiler(gpu)
    progress = _Progress()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(request.processes, context, _set_up_worker) as pool:
        # fork all workers now: later this thread holds locks that they would inherit
        pool.submit(build_driver_extension)
        queue = _SlowestFirst(
            lambda variant: pool.submit(compile_variant, variant, gpu), request.processes, progress
        )
        torch.set_num_threads(_TORCH_THREADS)
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[request.precision]
        with record_variants(gpu, queue.put), torch.inference_mode():
            networks = [NetworkLaunches(network, dtype, kernels) for network in request.networks]
            for network in networks:
                for launch in network.calls():
                    launch()
        if not progress.wait():
            for process in multiprocessing.active_children():
                process.kill()


def _set_up_worker() -> None:
    """Leave signals to the process that waits for this one, end with it, and leave the cores to others."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    os.nice(_NICENESS)


class _SlowestFirst:
    """A queue of kernels to compile, from which workers get the slow ones first.

    Args:
        submit: compiles a kernel in a worker.
        workers: number of workers.
        progress: counts the kernels.
    """

    def __init__(
        self, submit: "Callable[[KernelVariant], Future[bool]]", workers: int, progress: "_Progress"
    ) -> None:
        self._submit, self._free, self._progress = submit, workers, progress
        # a compilation that has already finished calls `_finish` from `_fill_workers`
        self._changed = threading.RLock()
        self._waiting: list[tuple[bool, int, KernelVariant]] = []
        self._count = 0

    def put(self, variant: "KernelVariant") -> None:
        """Queue a kernel."""
        self._progress.add()
        with self._changed:
            heapq.heappush(self._waiting, (variant.name not in _SLOW_KERNELS, self._count, variant))
            self._count += 1
        self._fill_workers()

    def _fill_workers(self, finished: int = 0) -> None:
        with self._changed:
            self._free += finished
            while self._free and self._waiting:
                variant = heapq.heappop(self._waiting)[-1]
                try:
                    compilation = self._submit(variant)
                except BrokenProcessPool as error:
                    self._progress.fail(error)
                    continue
                self._free -= 1
                compilation.add_done_callback(self._finish)

    def _finish(self, compilation: "Future[bool]") -> None:
        self._progress.finish(compilation)
        self._fill_workers(finished=1)


class _Progress:
    """The status of the compilation, written whenever it changes; the pool's thread reports results."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._status = CompilationStatus()
        self._abandoned = False

    def add(self) -> None:
        """Count a kernel to compile."""
        self._update(total=1)

    def finish(self, compilation: "Future[bool]") -> None:
        """Count a kernel that is in the cache now, or could not be compiled."""
        error = compilation.exception()
        if error is not None:
            self.fail(error)
        else:
            self._update(done=1, compiled=int(compilation.result()))

    def fail(self, error: BaseException) -> None:
        """Count a kernel that could not be compiled."""
        if isinstance(error, BrokenProcessPool):
            # all unfinished kernels fail with this error
            message = "the compiler has crashed"
        else:
            message = f"{type(error).__name__}: {error}".splitlines()[0]
        self._update(done=1, error=message)

    def wait(self) -> bool:
        """Wait until all kernels are done; return False if the process that reads the status has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._status.done == self._status.total)
            return not self._abandoned

    def _update(self, done: int = 0, total: int = 0, compiled: int = 0, error: str = "") -> None:
        with self._changed:
            old = self._status
            self._status = CompilationStatus(
                old.done + done, old.total + total, old.compiled + compiled, old.error or error
            )
            try:
                print(json.dumps(asdict(self._status)), flush=True)
            except OSError:
                self._abandoned = True
            self._changed.notify_all()


if __name__ == "__main__":
    main()
