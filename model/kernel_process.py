"""The process that compiles the network's kernels: it finds them, and forked workers compile them.

It never initialises CUDA, because a process that has done so cannot be forked. It reads a `KernelRequest`
from standard input, and writes a `CompilationStatus` as a line of JSON to standard output after each change.
"""

import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

from cuda.fused.toolchain import load_toolchain
from model.kernel_request import CompilationStatus, KernelRequest

# from <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
# added to the niceness of the workers: a run needs the kernels of its first searches, and torch, sooner
_NICENESS = 10
# torch's operations between the kernels are tiny
_TORCH_THREADS = 2


def main() -> None:
    """Compile the kernels of the request on standard input."""
    # the process and its workers end soon
    gc.disable()
    request = KernelRequest.from_json(sys.stdin.readline())
    with ThreadPoolExecutor(1) as background:
        toolchain = background.submit(load_toolchain)
        # importing torch takes as long, and is the work here
        import torch

        from cuda.fused.compilation import KernelVariant, compile_variant, record_variants
        from cuda.fused.gpu_model import GpuModel, assume_gpu
        from model.kernel_launches import network_launches
        from model.kernels import select_kernels

        gpu = GpuModel(request.gpu_name, request.capability)
        with assume_gpu(gpu):
            kernels = select_kernels("fused", "cpu")
        toolchain.result()
    progress = _Progress()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(request.processes, context, _set_up_worker) as pool:
        # fork all workers now: later this thread holds locks that they would inherit
        pool.submit(int)

        def submit(variant: KernelVariant) -> None:
            progress.add()
            try:
                pool.submit(compile_variant, variant, gpu).add_done_callback(progress.finish)
            except BrokenProcessPool as error:
                progress.fail(error)

        torch.set_num_threads(_TORCH_THREADS)
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[request.precision]
        with record_variants(gpu, submit), torch.inference_mode():
            for network in request.networks:
                for launch in network_launches(network, dtype, kernels):
                    launch()
        if not progress.wait():
            for process in multiprocessing.active_children():
                process.kill()


def _set_up_worker() -> None:
    """Leave Ctrl-C to the process that waits for this one, end with it, and leave the cores to others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICENESS)


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
            self._update(done=1, error="the compiler has crashed")
        else:
            self._update(done=1, error=f"{type(error).__name__}: {error}".splitlines()[0])

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
