"""The parts of the GPU engine that need no GPU: batches of queries, sequences brought together."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cuda.alignment.compiled import NotKept, _mode
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.compiling import Compiling
from msa.gpu.engine import _batches
from msa.gpu.gather import gathered
from msa.search.engine import QueryProfile


class Group:
    def __init__(self, stays: bool) -> None:
        self.stays = stays


def queries(lengths: list[int]) -> list[QueryProfile]:
    return [QueryProfile(np.zeros(n, np.uint8), np.zeros((n, 32), np.int16)) for n in lengths]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 24, 25, 100])
@pytest.mark.parametrize("stays", [True, False])
def test_batches_are_all_queries_in_order(count: int, stays: bool) -> None:
    every = queries([2 + k for k in range(count)])
    found = list(_batches(iter(every), [Group(stays)]))  # type: ignore[list-item]
    assert [id(query) for batch, _ in found for query in batch] == [id(query) for query in every]
    # each says whether another follows
    assert [again for _, again in found] == [True] * (len(found) - 1) + [False] * bool(found)


def test_the_first_and_last_batches_are_small_when_the_database_stays() -> None:
    sizes = [len(batch) for batch, _ in _batches(queries([10] * 100), [Group(True)])]  # type: ignore[list-item]
    assert sizes == [4, 8, 16, 24, 24, 12, 6, 3, 3]


def test_long_queries_make_smaller_batches() -> None:
    for stays, residues in ((True, 6144), (False, 8192)):
        found = _batches(queries([1000] * 64 + [40000]), [Group(stays)])  # type: ignore[list-item]
        totals = [sum(len(query.codes) for query in batch) for batch, _ in found]
        assert max(totals[:-1]) == residues // 1000 * 1000 and totals[-1] == 40000


def test_gathered_sequences() -> None:
    rng = np.random.default_rng(2)
    lengths = np.array([1, 3, 4, 5, 9, 16, 0, 2], np.int32)
    padded = -(-lengths.astype(np.int64) // 4) * 4
    targets = SequenceArrays(
        rng.integers(0, 21, padded.sum()).astype(np.uint8), np.cumsum(padded) - padded, lengths
    )
    for chosen in ([], [4], [0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 2, 2]):
        residues, offsets, found = gathered(targets, np.array(chosen, np.int64))
        assert len(residues) % 4 == 0 and found.tolist() == lengths[chosen].tolist()
        for place, start, length in zip(chosen, offsets.tolist(), found.tolist(), strict=True):
            assert start % 4 == 0
            assert residues[start : start + length].tolist() == targets.codes(place).tolist()


def test_processes_share_out_what_is_compiled(tmp_path: Path) -> None:
    kept, compiled = {3}, list[int]()

    def load(kernel: int) -> None:
        if kernel not in kept:
            if getattr(_mode, "kept_only", False):
                raise NotKept(str(kernel))
            compiled.append(kernel)
            kept.add(kernel)
            # the other process compiles another meanwhile, except at the end
            if kernel < 4:
                kept.add(kernel + 1)

    said: list[tuple[int, int]] = []
    one, other = (
        Compiling(tmp_path, lambda done, needed: said.append((done, needed)), share=(place, 2))
        for place in range(2)
    )
    loads = [partial(load, kernel) for kernel in range(7)]
    one._compile(loads)
    # of 0 1 2 4 5 6, which are missing, 0 2 5 are its own; 1 has been made by then, 4 and 6 have not
    assert compiled == [0, 2, 5, 4, 6]
    assert said[0] == (0, 3) and said[-1] == (5, 5)
    # the other finds all of them made, and says nothing
    said.clear()
    other._compile(loads)
    assert len(compiled) == 5 and not said
