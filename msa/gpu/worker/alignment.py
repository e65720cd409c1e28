"""Alignment of a batch's queries to their candidates on one GPU, in smaller pieces if memory is short."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cuda.alignment import AlignmentPaths, DeviceSequences
from cuda.alignment.device import release_unused
from cuda.alignment.smith_waterman import Pairs, end_positions, trace_paths
from cuda.alignment.smith_waterman.plan import available_shapes
from msa.base.errors import OutOfGpuMemory
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device.database_stream import Chunk
from msa.gpu.device.devices import AlignmentTooLarge
from msa.gpu.device.memory import Allocate, free_bytes, is_out_of_memory
from msa.gpu.device.target_upload import TargetUploader
from msa.gpu.worker.kernel_compiler import KernelCompiler
from msa.profile.pssm import QueryProfile

_INTERMEDIATE_BYTES = 2**30
"""GPU memory for intermediate results."""
_MIN_INTERMEDIATE_BYTES = 2**20

Result = TypeVar("Result")


@dataclass(frozen=True)
class AlignmentContext:
    """The GPU and the targets that a batch is aligned to.

    Args:
        gpu_name: for error messages.
        kernels: folder of compiled kernels.
        compiler: compiles the kernels.
        allocate: allocates GPU memory.
        stream: stream to launch on.
        uploader: copies targets that are not on the GPU.
        targets: the database.
        single_chunk: returns the chunk with all targets if it is on the GPU, else None.
    """

    gpu_name: str
    kernels: Path
    compiler: KernelCompiler
    allocate: Allocate
    stream: Any
    uploader: TargetUploader
    targets: SequenceArrays
    single_chunk: Callable[[], Chunk | None]


class BatchAligner:
    """The alignment of a batch's queries to targets: first all scores, then the paths of some pairs.

    Each call runs in one of the GPU's alignment threads, with that thread's context.

    Args:
        queries: the batch.
        owners: int32 [n], index of the query of each pair.
        targets: int64 [n], database index of the target of each pair.
        gap_costs: cost of a gap's first residue and of each further one, half-bits.
    """

    def __init__(
        self,
        queries: Sequence[QueryProfile],
        owners: np.ndarray,
        targets: np.ndarray,
        gap_costs: tuple[int, int],
    ) -> None:
        self._gap_costs = gap_costs
        self._profiles = [query.profile for query in queries]
        self._codes = [query.codes for query in queries]
        self._owners, self._targets = owners, targets
        self._ends = np.empty((0, 3), np.int32)

    def scores(self, context: AlignmentContext) -> np.ndarray:
        """Compute the scores of all pairs, int32 [n], half-bits."""

        def score(
            indices: np.ndarray, sequences: DeviceSequences, pairs: Pairs, options: dict[str, Any]
        ) -> np.ndarray:
            return end_positions(self._profiles, sequences, pairs, **options)

        pieces = self._in_pieces(context, np.arange(len(self._owners)), score)
        self._ends = np.concatenate([self._ends, *pieces])
        return self._ends[:, 0]

    def paths(self, context: AlignmentContext, selected: np.ndarray) -> AlignmentPaths:
        """Compute the alignments of the pairs with some indices, int64; call `scores` first."""

        def trace(
            indices: np.ndarray, sequences: DeviceSequences, pairs: Pairs, options: dict[str, Any]
        ) -> AlignmentPaths:
            ends = self._ends[indices]
            return trace_paths(self._profiles, self._codes, sequences, pairs, ends, **options)

        pieces = list(self._in_pieces(context, selected, trace))
        records = np.concatenate([np.empty((0, 8), np.int32), *(piece.records for piece in pieces)])
        runs = np.concatenate([np.empty(0, np.int32), *(piece.runs for piece in pieces)])
        counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(piece.run_offsets) for piece in pieces)])
        return AlignmentPaths(records, runs, np.cumsum(counts))

    def _in_pieces(
        self, context: AlignmentContext, indices: np.ndarray, work: Callable[..., Result]
    ) -> Iterator[Result]:
        """Process pairs, and retry with fewer pairs and less memory when GPU memory is exhausted.

        Args:
            context: GPU and targets.
            indices: int64 [m], of the pairs.
            work: called with indices of a piece, the targets on the GPU, the pairs, and options for
                `end_positions` and `trace_paths`.
        """
        shapes = available_shapes()
        if not context.compiler.compile_alignment(map(len, self._codes)):
            shapes = replace(shapes, packed=shapes.low_latency)
        max_pairs, budget, first = len(indices), _INTERMEDIATE_BYTES, 0
        while first < len(indices):
            piece = indices[first : first + max_pairs]
            try:
                targets = self._targets[piece]
                sequences, device_indices = _sequences_on_gpu(context, targets)
                pairs = Pairs(self._owners[piece], device_indices, context.targets.lengths[targets])
                options = {
                    "gap_open": self._gap_costs[0],
                    "gap_extend": self._gap_costs[1],
                    "stream": context.stream,
                    "budget": budget,
                    "shapes": shapes,
                    "kernels": context.kernels,
                    "allocate": context.allocate,
                }
                result = work(piece, sequences, pairs, options)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if max_pairs <= 1 and budget <= _MIN_INTERMEDIATE_BYTES:
                    requested = error.requested_bytes if isinstance(error, OutOfGpuMemory) else 0
                    raise AlignmentTooLarge(
                        f"{context.gpu_name} has no memory left for a single alignment: "
                        f"{requested} bytes are needed, {free_bytes()} are free"
                    ) from error
                max_pairs = max(1, len(piece) // 2)
                budget = max(_MIN_INTERMEDIATE_BYTES, budget // 2)
                release_unused()
                continue
            first += len(piece)
            yield result


def _sequences_on_gpu(context: AlignmentContext, targets: np.ndarray) -> tuple[DeviceSequences, np.ndarray]:
    """Return sequences on the GPU that include the targets, and the targets' indices in them."""
    chunk, stream = context.single_chunk(), context.stream
    if chunk is not None:
        # the copy may still be in progress
        chunk.ready.wait(stream)
        return chunk.sequences, targets - chunk.first
    unique, device_indices = np.unique(targets, return_inverse=True)
    return context.uploader.upload(context.targets, unique, stream), device_indices
