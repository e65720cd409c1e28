"""The process that compiles the network's kernels: it finds them, and forked workers compile them.

It never starts CUDA, as a process that has cannot be forked. It reads a `KernelRequest` from standard input
and writes a `CompilationStatus` to standard output, as a line of JSON, whenever one changes.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from dataclasses import asdict
from multiprocessing.pool import AsyncResult
from typing import Any

import torch
from triton.runtime.cache import triton_key

from cuda.fused.compilation import KernelVariant, compile_variant, provide_driver_library, record_variants
from cuda.fused.gpu_model import GpuModel, assume_gpu
from model.kernel_request import CompilationStatus, KernelRequest
from model.config import model_config
from model.kernel_launches import network_launches
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
    context = multiprocessing.get_context("fork")
    with context.Pool(request.processes, _ignore_interrupts) as pool:
        pending: list[AsyncResult[bool]] = []

        def submit(variant: KernelVariant) -> None:
            pending.append(pool.apply_async(_compile, (variant, gpu)))

        torch.set_num_threads(_TORCH_THREADS)
        with record_variants(gpu, submit), torch.inference_mode():
            for name in request.networks:
                for launch in network_launches(model_config(name), _DTYPES[request.precision], kernels):
                    launch()
        _report(pending)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compile(variant: KernelVariant, gpu: GpuModel) -> bool:
    return compile_variant(variant, gpu)


def _report(pending: "list[AsyncResult[bool]]") -> None:
    """Write the status after each kernel, in the order in which they were found."""
    compiled, errors = 0, []
    for done, result in enumerate(pending, 1):
        try:
            compiled += result.get()
        except Exception as error:  # compilers raise errors of many types
            errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
        status = CompilationStatus(done, len(pending), compiled, errors[0] if errors else "")
        print(json.dumps(asdict(status)), flush=True)


if __name__ == "__main__":
    main()
