"""The process that compiles the network's kernels: it finds them, and forked workers compile them.

It never starts CUDA, as a process that has cannot be forked. It reads a `KernelRequest` from standard input
and writes a `CompilationStatus` to standard output, as a line of JSON, whenever one changes.
"""

import json
import multiprocessing
import signal
import sys
import threading
from dataclasses import asdict

import torch
from triton.runtime.cache import triton_key

from cuda.fused.compilation import KernelVariant, compile_variant, provide_driver_library, record_variants
from cuda.fused.gpu_model import GpuModel, assume_gpu
from model.config import model_config
from model.kernel_launches import network_launches
from model.kernel_request import CompilationStatus, KernelRequest
from model.kernels import select_kernels

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
# torch's operations between the kernels are tiny
_TORCH_THREADS = 2


def main() -> None:
    """Compile the kernels of the request on standard input."""
    request = KernelRequest.from_json(sys.stdin.readline())
    gpu = GpuModel(request.gpu_name, request.capability)
    # what workers need is loaded before they are forked
    provide_driver_library()
    triton_key()
    with assume_gpu(gpu):
        kernels = select_kernels("fused", "cpu")
    progress = _Progress()
    with multiprocessing.get_context("fork").Pool(request.processes, _ignore_interrupts) as pool:

        def submit(variant: KernelVariant) -> None:
            progress.add()
            pool.apply_async(compile_variant, (variant, gpu), {}, progress.succeed, progress.fail)

        torch.set_num_threads(_TORCH_THREADS)
        with record_variants(gpu, submit), torch.inference_mode():
            for name in request.networks:
                for launch in network_launches(model_config(name), _DTYPES[request.precision], kernels):
                    launch()
        pool.close()
        pool.join()


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Progress:
    """The status of the compilation, written whenever it changes; the pool's thread reports results."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = CompilationStatus()

    def add(self) -> None:
        """Count a kernel to compile."""
        self._update(total=1)

    def succeed(self, compiled: bool) -> None:
        """Count a kernel that is in the cache now."""
        self._update(done=1, compiled=int(compiled))

    def fail(self, error: BaseException) -> None:
        """Count a kernel that could not be compiled."""
        self._update(done=1, error=f"{type(error).__name__}: {error}".splitlines()[0])

    def _update(self, done: int = 0, total: int = 0, compiled: int = 0, error: str = "") -> None:
        with self._lock:
            old = self._status
            self._status = CompilationStatus(
                old.done + done, old.total + total, old.compiled + compiled, old.error or error
            )
            print(json.dumps(asdict(self._status)), flush=True)
