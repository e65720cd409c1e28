"""What does the heavy part of a search: the CPU or a GPU, chosen once. Both give the same, bit for bit."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from msa.candidates import Candidates

if TYPE_CHECKING:
    from msa.cpu.targets import Targets
    from msa.search import SearchSettings


@dataclass(frozen=True)
class QueryProfile:
    """A query as the engines take it.

    Args:
        codes: uint8 [length ≥ 1], letter codes.
        profile: int16 [length, 32], half-bits.
    """

    codes: np.ndarray
    profile: np.ndarray


class Engine(Protocol):
    """Gapless filter and alignment of queries against a database."""

    def run(
        self,
        queries: Iterable[QueryProfile],
        targets: "Targets",
        settings: "SearchSettings",
        scored: Callable[[int], None] | None = None,
    ) -> Iterator[Candidates]:
        """Filter and align.

        Args:
            queries: taken as the engine has room for them.
            targets: the database.
            settings: of which the filter's limits and the gap costs are used, and the threads by the CPU.
            scored: called with how many pairs of query and target have been through the filter so far.

        Returns:
            The candidates of each query, in order.
        """
        ...


@dataclass(frozen=True)
class EngineChoice:
    """Where to search.

    Args:
        device: "auto", "cpu", "cuda" (the first GPU) or "cuda:N". "auto" takes the first GPU that works, and
            else the CPU.
        kernels: folder that keeps compiled GPU kernels between runs.
        share: of the GPU's free memory that the search may take.
    """

    device: str
    kernels: Path
    share: float = 0.9


def choose_engine(choice: EngineChoice, notice: Callable[[str], None]) -> Engine:
    """The engine for a choice.

    Args:
        choice: see EngineChoice.
        notice: under "auto", told in one line why the GPU that this machine has cannot be used; told when
            kernels are about to be compiled.

    Raises:
        GpuUnavailable: a GPU was asked for and cannot be used.
    """
    from msa.cpu.engine import CpuEngine

    if choice.device == "cpu":
        return CpuEngine()
    from msa.gpu.devices import GpuUnavailable, find_gpu, has_nvidia_hardware

    try:
        gpu = find_gpu(int(choice.device.partition(":")[2] or 0))
    except GpuUnavailable as error:
        if choice.device != "auto":
            raise
        if has_nvidia_hardware():
            notice(f"searching on the CPU: {error.reason}")
        return CpuEngine()
    from msa.gpu.engine import GpuEngine, GpuSettings

    return GpuEngine(gpu, GpuSettings(choice.kernels, choice.share), notice)
