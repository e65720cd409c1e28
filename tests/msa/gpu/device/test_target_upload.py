"""Copies of chosen targets to the GPU, in numba's simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda.alignment import device as gpu
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device import target_upload
from msa.gpu.device.memory import allocate_on_gpu
from msa.gpu.device.target_upload import TargetUploader

pytestmark = pytest.mark.simulator


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=12),
    chosen=st.lists(st.integers(0, 11), min_size=1, max_size=20),
    word=st.sampled_from([1, 4]),
    blocks_per_buffer=st.integers(1, 5),
)
def test_uploaded_targets_equal_those_of_the_database(
    lengths: list[int], chosen: list[int], word: int, blocks_per_buffer: int
) -> None:
    rng = np.random.default_rng(len(lengths))
    padded = [-(-length // word) * word for length in lengths]
    residues = rng.integers(1, 30, sum(padded)).astype(np.uint8)
    offsets = np.cumsum([0, *padded])[:-1].astype(np.int64)
    targets = SequenceArrays(residues, offsets, np.array(lengths, np.int32))
    indices = np.array([index % len(lengths) for index in chosen], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_upload, "PINNED_BYTES", blocks_per_buffer * target_upload.BLOCK_BYTES)
        uploaded = TargetUploader(allocate_on_gpu).upload(targets, indices, gpu.new_stream())
    gpu.synchronize()
    copies, starts, found = (
        each.copy_to_host() for each in (uploaded.residues, uploaded.offsets, uploaded.lengths)
    )
    assert found.tolist() == targets.lengths[indices].tolist() and not (starts % 4).any()
    for index, start, length in zip(indices.tolist(), starts.tolist(), found.tolist(), strict=True):
        assert copies[start : start + length].tolist() == targets.codes(index).tolist()
    assert not copies[-target_upload.BLOCK_BYTES :].any()


def test_blocks_beyond_the_end_are_zero() -> None:
    targets = SequenceArrays.contiguous(np.arange(1, 11, dtype=np.uint8), np.array([10], np.int32))
    copy = np.full(16, 99, np.uint8)
    targets.copy_blocks(np.array([2, 0, 3, 1]), copy)
    assert copy.tolist() == [9, 10, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8]
    targets.copy_blocks(np.empty(0, np.int64), copy[:0])
