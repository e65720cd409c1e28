"""Copies of chosen targets to the GPU, for a database that does not stay there."""

from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device.memory import PINNED_BYTES, Allocate, PinnedBuffer

BLOCK_BYTES = 64
"""Targets are copied in blocks of this size: a line of the processor's cache."""

ALIGNMENT = 4
"""On the GPU, targets start at multiples of this many bytes."""
_BUFFERS = 2
"""Pinned buffers: one is filled while the other is sent."""


class TargetUploader:
    """Copies targets to the current GPU; used by one thread.

    The processor copies each block once, into pinned memory that the GPU reads.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._buffers = [PinnedBuffer() for _ in range(_BUFFERS)]

    def upload(self, targets: SequenceArrays, indices: np.ndarray, stream: Any) -> DeviceSequences:
        """Queue the copies of some targets.

        Args:
            targets: the database, or other sequences.
            indices: int64 [n ≥ 1].
            stream: stream of the copies.

        Returns:
            The targets in this order, with what surrounds them in their blocks. A block of zeros follows.
        """
        starts = targets.offsets[indices]
        if np.any(starts % ALIGNMENT):
            arrays = targets.gather(indices, BLOCK_BYTES)
            return DeviceSequences(
                *(gpu.to_device(each, stream) for each in (arrays.residues, arrays.offsets, arrays.lengths))
            )
        lengths = targets.lengths[indices]
        blocks, offsets = block_indices(starts, lengths, BLOCK_BYTES)
        # a block after the end of all residues is zero
        blocks = np.append(blocks, len(targets.residues) // BLOCK_BYTES + 1)
        # all memory before the first copy, which would otherwise go on after an error
        residues = self._allocate(len(blocks) * BLOCK_BYTES, np.dtype(np.uint8))
        numbers = [self._allocate(len(each), each.dtype)[: len(each)] for each in (offsets, lengths)]
        for copy, array in zip(numbers, (offsets, lengths), strict=True):
            copy.copy_to_device(array, stream=stream)
        per_buffer = PINNED_BYTES // BLOCK_BYTES
        for number, first in enumerate(range(0, len(blocks), per_buffer)):
            piece = blocks[first : first + per_buffer]
            buffer = self._buffers[number % _BUFFERS]
            content = buffer.memory()[: len(piece) * BLOCK_BYTES]
            targets.copy_blocks(piece, content)
            buffer.send(content, residues[first * BLOCK_BYTES :][: len(content)], stream)
        return DeviceSequences(residues, *numbers)


def block_indices(starts: np.ndarray, lengths: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks of an array that contain some sequences.

    Args:
        starts: int64 [n], index of the first residue of each.
        lengths: int32 [n], residues of each.
        block: size of a block.

    Returns:
        Indices of blocks, int64 [m], sequence after sequence; and where each sequence starts in these blocks,
        int64 [n].
    """
    first = starts // block
    counts = -(-(starts + lengths) // block) - first
    before = np.cumsum(counts) - counts
    indices = np.repeat(first - before, counts)
    indices += np.arange(len(indices))
    return indices, before * block + starts % block
