"""Compilation of GPU kernels before a run's first target, in processes of their own.

A mark in the kernels' cache says that all kernels of a network are compiled for a GPU, so that later runs
start no process.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Literal

from foldcli.fingerprints import fingerprint
from foldcli.logs import log_time_since_start, logger
from foldcli.paths import cache_dir
from foldcli.process_state import set_triton_cache_folder
from foldcli.progress import CompilationProgress
from foldcli.version import VERSION
from model.alphafold2.modules.config import ModelConfig
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.errors import MissingError
from msa.base.hardware import available_cores
from msa.base.services.service import Service, ServiceEnded
from msa.gpu.device.devices import name_and_capability
from msa.gpu.worker.kernel_compiler import KernelCompiler

# each process that compiles needs memory of its own
MAX_PROCESSES = 32
# compute capability from which on GPUs have bfloat16
BF16_CAPABILITY = (8, 0)

_PACKAGES = Path(__file__).resolve().parents[3]

# a compilation that finishes no kernel for this many seconds hangs
_MAX_SILENCE = 900.0
# begins the names of the files that mark kernels as compiled
_MARK = "compiled"

ReportProgress = Callable[[int, int], None]


class KernelCompilation:
    """A compilation that goes on in processes.

    Args:
        marks: files that are written when all of them are compiled.
        progress: called, in a thread, with the kernels that are done and those found so far.
    """

    def __init__(self, request: KernelRequest, marks: Sequence[Path], progress: ReportProgress) -> None:
        self.status = CompilationStatus()
        self._marks, self._progress, self._has_ended = marks, progress, threading.Event()
        progress(0, 1)
        self.service = Service(
            "model.planning.kernel_process:Compiler", on_progress=self._update, output=subprocess.DEVNULL
        )
        self.service.request("compile", request).add_done_callback(self._finish)

    def wait(self) -> CompilationStatus:
        """Wait until all kernels are compiled; after an error, launches compile what is missing."""
        before = None
        while not self._has_ended.wait(_MAX_SILENCE):
            if self.status == before:
                logger.warning(
                    "kernels are compiled at their first use, because the compiler does not answer"
                )
                self.service.kill()
            before = self.status
        return self.status

    def _update(self, status: CompilationStatus) -> None:
        self.status = status
        self._progress(status.done, status.total)

    def _finish(self, done: "Future[None]") -> None:
        error = done.exception()
        if error is not None and not self.status.error:
            text = str(error) if isinstance(error, ServiceEnded) else f"{type(error).__name__}: {error}"
            self.status = replace(self.status, error=text.partition("\n")[0])
        if self.status.error:
            logger.debug("kernels could not be compiled ahead: %s", self.status.error)
        else:
            log_time_since_start("the kernels of the network are compiled")
            for mark in self._marks:
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
        self._has_ended.set()
        self.service.close()


def compile_for_run(
    networks: Sequence[ModelConfig], precision: Literal["bf16", "fp32"] | None, gpu: int
) -> KernelCompilation | None:
    """Start to compile all kernels that networks launch on a GPU of this machine, if any may be missing.

    Call it as early as possible, without torch imported or CUDA started, and call `wait` of the result before
    the first pass. The kernels serve targets of all lengths and alignments of all depths. Errors are ignored
    here; the first launch reports them.

    Args:
        networks: architectures.
        precision: number format of the trunk; None is the best that the GPU has.
        gpu: number of the GPU.

    Returns:
        None if all kernels were compiled before, there is no such GPU, or Triton is not installed.
    """
    found = name_and_capability(gpu)
    return None if found is None else compile_for_gpu(networks, precision, *found)


def compile_for_gpu(
    networks: Sequence[ModelConfig],
    precision: Literal["bf16", "fp32"] | None,
    gpu_name: str,
    capability: tuple[int, int],
) -> KernelCompilation | None:
    """Like `compile_for_run`, for a GPU that this machine need not have.

    Its name, as the driver reports it, such as "NVIDIA H200", selects tuned launches.
    """
    precision = precision or _best_precision(capability)
    marks = {_mark(network, precision, gpu_name, capability): network for network in networks}
    missing = {mark: network for mark, network in marks.items() if not mark.exists()}
    if not triton_version() or not missing:
        return None
    processes = min(available_cores(), MAX_PROCESSES)
    request = KernelRequest(gpu_name, capability, tuple(missing.values()), precision, processes)
    return KernelCompilation(request, list(missing), CompilationProgress())


def compile_search_kernels(gpu_name: str, capability: tuple[int, int], max_length: int) -> None:
    """Compile the kernels of searches in several processes, for a GPU that this machine need not have.

    Raises:
        MissingError: the kernels cannot be compiled.
    """
    compiler = KernelCompiler.for_gpu(cache_dir() / "kernels", CompilationProgress(), gpu_name, capability)
    try:
        compiler.compile_search(range(1, max_length + 1))
    except Exception as error:  # the compiler's errors have no common base class
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise MissingError(
            f"the kernels of searches cannot be compiled: {reason}",
            "pip install 'foldcli[cuda]', or leave them out: --max-length 0.",
        ) from error


def are_compiled(network: ModelConfig, gpu_name: str, capability: tuple[int, int]) -> bool:
    """Return whether all kernels of a network are compiled for the best precision of a GPU."""
    return _mark(network, _best_precision(capability), gpu_name, capability).exists()


def _best_precision(capability: tuple[int, int]) -> Literal["bf16", "fp32"]:
    return "bf16" if capability >= BF16_CAPABILITY else "fp32"


def _mark(network: ModelConfig, precision: str, gpu_name: str, capability: tuple[int, int]) -> Path:
    """Return the path of the file that marks the kernels of a network as compiled.

    Networks with the same kernels have the same mark.
    """
    sizes = asdict(network.with_blocks(1, 1))
    for name in ("name", "trained", "predicted_aligned_error"):
        del sizes[name]
    made_for = {
        "foldcli": VERSION,
        "triton": triton_version(),
        "python": sys.implementation.cache_tag,
        "gpu": gpu_name,
        "capability": capability,
        "precision": precision,
        "sizes": sizes,
    }
    return set_triton_cache_folder() / f"{_MARK}-{_sources_digest()}-{fingerprint(made_for)[:16]}"


@cache
def _sources_digest() -> str:
    """Return a short digest of the sources that kernels and their launches depend on."""
    digest = sha256()
    for package in ("cuda/fused", "model"):
        for path in sorted((_PACKAGES / package).rglob("*.*")):
            if path.suffix in (".py", ".json"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def triton_version() -> str:
    """Return the version of Triton, or "" if it is not installed."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""
