"""Timing the gapless filter on one GPU, and tuning it there."""

from collections.abc import Callable, Sequence
from pathlib import Path

from numba import cuda

from cuda.alignment.gapless.launch_table import own_table
from cuda.alignment.gapless.speed import Speed, as_json, speed, tuned_table, wall
from msa.gpu.devices import Gpu

__all__ = ["GaplessBench", "Speed"]


class GaplessBench:
    """The filter on one GPU.

    Args:
        gpu: from `find_gpu`.
        kernels: folder that keeps compiled kernels between runs.
    """

    def __init__(self, gpu: Gpu, kernels: Path) -> None:
        self._kernels = kernels
        cuda.select_device(gpu.number)
        self.table_path = own_table(gpu.name, kernels)
        """Where a search on such a GPU looks for a launch table first."""

    def wall(self) -> float:
        """10¹² cells per second that shared memory could serve at two bytes a cell."""
        return wall()

    def speed(self, length: int) -> Speed:
        """For queries of a length, with the launches that a search takes."""
        return speed(length, self._kernels)

    def tuned(self, lengths: Sequence[int], report: Callable[[str], None]) -> str:
        """A launch table, as JSON, with the fastest launches for queries of some lengths.

        Args:
            lengths: of the queries, or none: those of the present table, whose other rows stay.
            report: told a line for every launch tried.
        """
        return as_json(tuned_table(lengths, self._kernels, report))
