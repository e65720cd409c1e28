"""Compilation of GPU kernels before a run's first target, in processes of their own.

A mark in the kernels' cache says that all kernels of a network are compiled for a GPU, so that later runs
start no process.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Literal

from foldcli.fingerprints import fingerprint
from foldcli.logs import log_time_since_start, logger
from foldcli.options.common import available_cores
from foldcli.paths import cache_dir
from foldcli.process_state import set_triton_cache_folder
from foldcli.progress import CompilationProgress
from foldcli.version import VERSION
from model.alphafold2.modules.config import ModelConfig
from model.planning.kernel_request import CompilationStatus, KernelRequest
from msa.base.child_process import main_command
from msa.base.errors import MissingError
from msa.gpu.device.devices import name_and_capability
from msa.gpu.worker.kernel_compiler import KernelCompiler

# each process that compiles needs memory of its own
MAX_PROCESSES = 32
# compute capability from which on GPUs have bfloat16
BF16_CAPABILITY = (8, 0)

_PACKAGES = Path(__file__).resolve().parents[3]

# a compilation without a finished kernel for so many seconds hangs
_MAX_SILENCE = 900.0
# begins the names of the files that mark kernels as compiled
_MARK = "compiled"

ReportProgress = Callable[[int, int], None]


def _start_process() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        main_command("model.planning.kernel_process"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


class KernelCompilation:
    """A compilation that goes on in processes.

    Args:
        request: kernels to compile.
        marks: files that are written when all of them are compiled.
        progress: called, in a thread, with the kernels that are done and those found so far.
    """

    def __init__(self, request: KernelRequest, marks: Sequence[Path], progress: ReportProgress) -> None:
        self.status = CompilationStatus()
        self._marks, self._progress = marks, progress
        self._process = _start_process()
        assert self._process.stdin is not None
        # if the process has ended, `_read_status` finds the reason
        with contextlib.suppress(BrokenPipeError), self._process.stdin as requests:
            requests.write(f"{request.to_json()}\n")
        self._thread = threading.Thread(target=self._read_status, daemon=True)
        self._thread.start()

    def wait(self) -> CompilationStatus:
        """Wait until all kernels are compiled; after an error, launches compile what is missing."""
        while self._thread.is_alive():
            before = self.status
            self._thread.join(_MAX_SILENCE)
            if self._thread.is_alive() and self.status == before:
                logger.warning(
                    "kernels are compiled at their first use, because the compiler does not answer"
                )
                self._process.kill()
                self._thread.join()
        return self.status

    def _read_status(self) -> None:
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        self._progress(0, 1)
        for line in process.stdout:
            self.status = CompilationStatus(**json.loads(line))
            self._progress(self.status.done, self.status.total)
        messages = process.stderr.read().strip().splitlines()
        if process.wait() and not self.status.error:
            reason = messages[-1] if messages else f"exit code {process.returncode}"
            self.status = CompilationStatus(self.status.done, self.status.total, self.status.compiled, reason)
        if self.status.error:
            logger.debug("kernels could not be compiled ahead: %s", self.status.error)
            return
        log_time_since_start("the kernels of the network are compiled")
        for mark in self._marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def compile_for_run(
    networks: Sequence[ModelConfig],
    precision: Literal["bf16", "fp32"] | None,
    gpu: int,
    progress: ReportProgress | None = None,
) -> KernelCompilation | None:
    """Start to compile all kernels that networks launch on a GPU of this machine, if any may be missing.

    Call it as early as possible, without torch imported or CUDA started, and call `wait` of the result before
    the first pass. The kernels serve targets of all lengths and alignments of all depths. Errors are ignored
    here; the first launch reports them.

    Args:
        networks: architectures.
        precision: number format of the trunk; None is the best that the GPU has.
        gpu: number of the GPU.
        progress: see `KernelCompilation`; default: a log message and a progress bar.

    Returns:
        None if all kernels were compiled before, there is no such GPU, or Triton is not installed.
    """
    found = name_and_capability(gpu)
    if found is None:
        return None
    return compile_for_gpu(networks, precision, *found, progress)


def compile_for_gpu(
    networks: Sequence[ModelConfig],
    precision: Literal["bf16", "fp32"] | None,
    gpu_name: str,
    capability: tuple[int, int],
    progress: ReportProgress | None = None,
) -> KernelCompilation | None:
    """Like `compile_for_run`, for a GPU that this machine need not have.

    Args:
        networks: see `compile_for_run`.
        precision: number format of the trunk; None is the best that the GPU has.
        gpu_name: as the driver reports it, such as "NVIDIA H200"; it selects tuned launches.
        capability: compute capability.
        progress: see `KernelCompilation`.
    """
    precision = precision or _best_precision(capability)
    marks = {_mark(network, precision, gpu_name, capability): network for network in networks}
    missing = {mark: network for mark, network in marks.items() if not mark.exists()}
    if not triton_version() or not missing:
        return None
    processes = min(available_cores(), MAX_PROCESSES)
    request = KernelRequest(gpu_name, capability, tuple(missing.values()), precision, processes)
    return KernelCompilation(request, list(missing), progress or CompilationProgress())


def compile_search_kernels(gpu_name: str, capability: tuple[int, int], max_length: int) -> None:
    """Compile the kernels of searches in several processes, for a GPU that this machine need not have.

    Args:
        gpu_name: see `compile_for_gpu`.
        capability: see `compile_for_gpu`.
        max_length: residues of the longest query.

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
