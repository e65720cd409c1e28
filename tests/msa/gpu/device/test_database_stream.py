"""Passes over a database in chunks, in numba's simulator."""

import numpy as np
import pytest

from cuda.alignment import DeviceSequences
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device.database_stream import Chunk, DatabaseStream

pytestmark = pytest.mark.simulator


def database(lengths: list[int]) -> SequenceArrays:
    """Create targets of these lengths; all bytes of a target are different."""
    padded = [-(-length // 4) * 4 for length in lengths]
    offsets = np.cumsum([0, *padded])[:-1].astype(np.int64)
    residues = np.arange(sum(padded), dtype=np.int64).astype(np.uint8)
    return SequenceArrays(residues, offsets, np.array(lengths, np.int32))


def check_sequences(sequences: DeviceSequences, targets: SequenceArrays, indices: list[int]) -> None:
    """Check that sequences on the GPU are some of the database."""
    residues, offsets, lengths = (
        array.copy_to_host() for array in (sequences.residues, sequences.offsets, sequences.lengths)
    )
    assert len(offsets) == len(lengths) == len(indices)
    for index, offset, length in zip(indices, offsets.tolist(), lengths.tolist(), strict=True):
        assert residues[offset : offset + length].tolist() == targets.codes(index).tolist()


def checked_range(chunk: Chunk, targets: SequenceArrays) -> tuple[int, int]:
    """Check that a chunk on the GPU equals the database; return its first target and end."""
    check_sequences(chunk.sequences, targets, list(range(chunk.first, chunk.end)))
    assert chunk.max_targets >= len(chunk)
    return chunk.first, chunk.end


@pytest.mark.slow
@pytest.mark.parametrize("part", [(0, 40), (7, 31), (39, 40)])
@pytest.mark.parametrize("budget", [1, 300, 900, 10**6])
def test_pass_goes_from_last_to_first_target(part: tuple[int, int], budget: int) -> None:
    targets = database(sorted(np.random.default_rng(budget).integers(0, 60, 40).tolist()))
    stream = DatabaseStream(targets, part, 0, budget, 4, max_chunk_bytes=500)
    try:
        for more_follow in (True, False):
            chunks = []
            for chunk in stream.chunks(part[1], more_follow):
                chunks.append((*checked_range(chunk, targets), chunk.max_targets))
            ends = [part[1], *(first for first, _, _ in chunks)]
            assert ends[-1] == part[0] and [end for _, end, _ in chunks] == ends[:-1]
            assert all(first < end for first, end, _ in chunks)
            # the first chunk announces the largest number of targets
            assert len({max_targets for *_, max_targets in chunks}) == 1
            if budget == 1:
                assert chunks == [(k, k + 1, 1) for k in range(part[0], part[1])][::-1]
    finally:
        stream.close()


def test_pass_continues_with_smaller_chunks() -> None:
    targets = database([20] * 40)
    stream = DatabaseStream(targets, (0, 40), 0, 400, 0)
    try:
        end, sizes = 40, []
        for chunk in stream.chunks(end, True):
            first, end = checked_range(chunk, targets)
            sizes.append(end - first)
            break
        stream.shrink()
        end = first
        for chunk in stream.chunks(end, True):
            first, stop = checked_range(chunk, targets)
            assert stop == end
            sizes.append(stop - first)
            end = first
        assert end == 0 and sum(sizes) == 40 and max(sizes[1:]) <= sizes[0] // 2 + 1
        # another pass starts from the end again
        assert next(stream.chunks(40)).end == 40
    finally:
        stream.close()
