"""Alignment of a batch's queries to their candidates on one GPU, with less at a time when memory is short."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numba import cuda

from cuda.alignment.smith_waterman import Alignments, DeviceTargets, Pairs, Query, end_positions, trace_paths
from cuda.alignment.smith_waterman.plan import MANY
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.compiling import Compiling
from msa.gpu.database_stream import Chunk
from msa.gpu.devices import GpuUnavailable
from msa.gpu.gather import gathered
from msa.gpu.gpu_worker import Paths
from msa.gpu.memory import Allocate, OutOfGpuMemory, free_bytes, is_out_of_memory, release_unused
from msa.search.engine import QueryProfile

_ALIGNMENT_BYTES = 2**30
"""GPU memory for intermediate results."""
_FEWEST_ALIGNMENT_BYTES = 2**20
_MANY_PAIRS = 4 * MANY
"""From which the kernels for many pairs at a time, which are others, are worth compiling."""

Result = TypeVar("Result")


class Gpu(Protocol):
    """What alignment needs of the GPU with the targets; a worker has it."""

    @property
    def name(self) -> str:
        """As the driver gives it."""
        ...

    @property
    def kernels(self) -> Path:
        """Folder of compiled kernels."""
        ...

    @property
    def compiling(self) -> Compiling:
        """Makes the kernels."""
        ...

    @property
    def allocate(self) -> Allocate:
        """How GPU memory is taken."""
        ...

    @property
    def targets(self) -> SequenceArrays:
        """The database."""
        ...

    @property
    def whole(self) -> Chunk | None:
        """All targets that the GPU has, if they stay there in one chunk."""
        ...

    @property
    def stream(self) -> Any:
        """What to launch on."""
        ...


class Alignment:
    """Alignments of a batch's queries to targets of one GPU: scores first, then the paths of some.

    Used in the GPU's thread for alignments.

    Args:
        gpu: see Gpu.
        queries: of a batch.
        owners: int32 [n], index in the queries.
        chosen: int64 [n], places in the database.
        gaps: costs of a gap's first residue and each further one, half-bits.
    """

    def __init__(
        self,
        gpu: Gpu,
        queries: Sequence[QueryProfile],
        owners: np.ndarray,
        chosen: np.ndarray,
        gaps: tuple[int, int],
    ) -> None:
        self._gpu, self._gaps = gpu, gaps
        self._queries = [Query(query.profile, query.codes) for query in queries]
        self._owners, self._chosen = owners, chosen
        self._ends = np.empty((0, 3), np.int32)

    def scores(self) -> np.ndarray:
        """int32 [n], half-bits."""
        self._gpu.compiling.for_alignment(
            [len(query.codes) for query in self._queries], many=len(self._owners) >= _MANY_PAIRS
        )

        def score(places: np.ndarray, pairs: tuple[Any, Any, Any], how: dict[str, Any]) -> np.ndarray:
            return end_positions(*pairs, **how)

        pieces = self._in_pieces(np.arange(len(self._owners)), score)
        self._ends = np.concatenate([self._ends, *pieces])
        return self._ends[:, 0]

    def paths(self, kept: np.ndarray) -> Paths:
        """The alignments of the pairs at some places, int64; after `scores`."""

        def trace(places: np.ndarray, pairs: tuple[Any, Any, Any], how: dict[str, Any]) -> Alignments:
            return trace_paths(*pairs, self._ends[places], **how)

        pieces = list(self._in_pieces(kept, trace))
        found = np.concatenate([np.empty((0, 8), np.int32), *(piece.found for piece in pieces)])
        runs = np.concatenate([np.empty(0, np.int32), *(piece.runs for piece in pieces)])
        counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(piece.starts) for piece in pieces)])
        return Paths(found, runs, np.cumsum(counts))

    def _in_pieces(self, places: np.ndarray, work: Callable[..., Result]) -> Iterator[Result]:
        """Do something with pairs, with fewer of them at a time when the GPU has not the memory."""
        most = len(places) if len(self._owners) >= _MANY_PAIRS else MANY - 1
        budget, first = _ALIGNMENT_BYTES, 0
        gpu = self._gpu
        while first < len(places):
            piece = places[first : first + most]
            try:
                chosen = self._chosen[piece]
                targets, which = self._targets(chosen)
                pairs = Pairs(self._owners[piece], which, gpu.targets.lengths[chosen])
                how = {
                    "gap_open": self._gaps[0],
                    "gap_extend": self._gaps[1],
                    "stream": gpu.stream,
                    "budget": budget,
                    "kernels": gpu.kernels,
                    "allocate": gpu.allocate,
                }
                result = work(piece, (self._queries, targets, pairs), how)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if most <= 1 and budget <= _FEWEST_ALIGNMENT_BYTES:
                    asked = error.asked if isinstance(error, OutOfGpuMemory) else 0
                    raise GpuUnavailable(
                        f"{gpu.name} has no memory left for a single alignment: {asked} bytes are "
                        f"asked for, {free_bytes()} are free"
                    ) from error
                most, budget = max(1, len(piece) // 2), max(_FEWEST_ALIGNMENT_BYTES, budget // 2)
                release_unused()
                continue
            first += len(piece)
            yield result

    def _targets(self, chosen: np.ndarray) -> tuple[DeviceTargets, np.ndarray]:
        """Where targets are on the GPU, and their places there, int64; a copy if need be."""
        whole, stream = self._gpu.whole, self._gpu.stream
        if whole is not None:
            # the copy may not have ended yet when nothing has waited for it
            whole.ready.wait(stream)
            return DeviceTargets(whole.residues, whole.offsets, whole.lengths), chosen - whole.first
        places, which = np.unique(chosen, return_inverse=True)
        arrays = gathered(self._gpu.targets, places)
        return DeviceTargets(*(cuda.to_device(array, stream=stream) for array in arrays)), which
