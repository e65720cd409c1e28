"""Messages between a run and the process that compiles its kernels."""

from dataclasses import dataclass
from typing import Literal

from model.alphafold2.modules.config import ModelConfig


@dataclass(frozen=True)
class KernelRequest:
    """Kernels to compile."""

    gpu_name: str  # name of the GPU as the driver reports it; it selects tuned launches
    capability: tuple[int, int]  # its compute capability
    networks: tuple[ModelConfig, ...]  # architectures
    precision: Literal["bf16", "fp32"]  # number format of the trunk
    processes: int  # number of processes that compile


@dataclass(frozen=True)
class CompilationStatus:
    """The state of a compilation."""

    done: int = 0  # kernels that were compiled, were in the cache already, or failed
    total: int = 0  # kernels found so far
    compiled: int = 0  # kernels that were not in the cache
    error: str = ""  # the first error; "" if there was none
