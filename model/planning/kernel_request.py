"""Messages between a run and the process that compiles its kernels."""

from dataclasses import dataclass
from typing import Literal

from model.alphafold2.modules.config import ModelConfig


@dataclass(frozen=True)
class KernelRequest:
    """Kernels to compile.

    Args:
        gpu_name: name of the GPU as the driver reports it; it selects tuned launches.
        capability: its compute capability.
        networks: architectures.
        precision: number format of the trunk.
        processes: number of processes that compile.
    """

    gpu_name: str
    capability: tuple[int, int]
    networks: tuple[ModelConfig, ...]
    precision: Literal["bf16", "fp32"]
    processes: int


@dataclass(frozen=True)
class CompilationStatus:
    """The state of a compilation.

    Args:
        done: kernels that were compiled, were in the cache already, or failed.
        total: kernels found so far.
        compiled: kernels that were not in the cache.
        error: the first error; "" if there was none.
    """

    done: int = 0
    total: int = 0
    compiled: int = 0
    error: str = ""
