"""Passes over a database in chunks, under numba's simulator, in a process that has chosen it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa.database.sequence_arrays import SequenceArrays

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
simulated = pytest.mark.skipif(not SIMULATED, reason="runs in the process that the first test starts")


@pytest.mark.skipif(SIMULATED, reason="the tests run in this process")
def test_under_the_simulator(root: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0 and " passed" in result.stdout, result.stdout + result.stderr


def database(lengths: list[int]) -> SequenceArrays:
    """Targets of these lengths; no two bytes of a target are equal."""
    room = [-(-length // 4) * 4 for length in lengths]
    offsets = np.cumsum([0, *room])[:-1].astype(np.int64)
    residues = np.arange(sum(room), dtype=np.int64).astype(np.uint8)
    return SequenceArrays(residues, offsets, np.array(lengths, np.int32))


def seen(chunk: Any, targets: SequenceArrays) -> tuple[int, int]:
    """A chunk's targets, once what is on the GPU has been found equal to the database's."""
    first, end = chunk.first, chunk.end
    residues, offsets, lengths = (
        array.copy_to_host() for array in (chunk.residues, chunk.offsets, chunk.lengths)
    )
    assert lengths.tolist() == targets.lengths[first:end].tolist()
    for k, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        start = targets.offsets[first + k]
        assert (residues[offset : offset + length] == targets.residues[start : start + length]).all()
    assert chunk.most >= end - first
    return first, end


@simulated
@pytest.mark.parametrize("part", [(0, 40), (7, 31), (39, 40)])
@pytest.mark.parametrize("budget", [1, 300, 900, 10**6])
def test_a_pass_goes_from_the_last_target_to_the_first(part: tuple[int, int], budget: int) -> None:
    from msa.gpu.database_stream import Residency

    targets = database(sorted(np.random.default_rng(budget).integers(0, 60, 40).tolist()))
    residency = Residency(targets, part, 0, budget, 4, most_chunk_bytes=500)
    try:
        for again in (True, False):
            chunks = []
            for chunk in residency.chunks(part[1], again):
                chunks.append((*seen(chunk, targets), chunk.most))
            ends = [part[1], *(first for first, _, _ in chunks)]
            assert ends[-1] == part[0] and [end for _, end, _ in chunks] == ends[:-1]
            assert all(first < end for first, end, _ in chunks)
            # none of a pass needs more room than the first one says
            assert len({most for *_, most in chunks}) == 1
            if budget == 1:
                assert chunks == [(k, k + 1, 1) for k in range(part[0], part[1])][::-1]
    finally:
        residency.close()


@simulated
def test_smaller_chunks_go_on_where_the_pass_was() -> None:
    from msa.gpu.database_stream import Residency

    targets = database([20] * 40)
    residency = Residency(targets, (0, 40), 0, 400, 0)
    try:
        end, sizes = 40, []
        for chunk in residency.chunks(end, True):
            first, end = seen(chunk, targets)
            sizes.append(end - first)
            break
        residency.shrink()
        end = first
        for chunk in residency.chunks(end, True):
            first, stop = seen(chunk, targets)
            assert stop == end
            sizes.append(stop - first)
            end = first
        assert end == 0 and sum(sizes) == 40 and max(sizes[1:]) <= sizes[0] // 2 + 1
        # another pass begins at the end again
        assert next(residency.chunks(40)).end == 40
    finally:
        residency.close()
