"""Parts of the GPU engine that need no GPU: query batches, gathered sequences, shared compilation."""

from pathlib import Path

import numpy as np
import pytest

from cuda.alignment.device import Device
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.engine import _query_batches
from msa.gpu.worker import kernel_compiler
from msa.gpu.worker.kernel_compiler import KernelCompiler
from msa.profile.pssm import QueryProfile


class FakeGroup:
    def __init__(self, resident: bool) -> None:
        self.resident = resident


def queries(lengths: list[int]) -> list[QueryProfile]:
    return [QueryProfile(np.zeros(n, np.uint8), np.zeros((n, 32), np.int16)) for n in lengths]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 24, 25, 100])
@pytest.mark.parametrize("resident", [True, False])
def test_batches_contain_all_queries_in_order(count: int, resident: bool) -> None:
    expected = queries([2 + k for k in range(count)])
    found = list(_query_batches(iter(expected), [FakeGroup(resident)]))  # type: ignore[list-item]
    assert [id(query) for batch, _ in found for query in batch] == [id(query) for query in expected]
    # each is flagged with whether another follows
    assert [more_follow for _, more_follow in found] == [True] * (len(found) - 1) + [False] * bool(found)


def test_first_and_last_batches_are_small_for_a_resident_database() -> None:
    sizes = [len(batch) for batch, _ in _query_batches(queries([10] * 100), [FakeGroup(True)])]  # type: ignore[list-item]
    assert sizes == [4, 8, 16, 24, 24, 12, 6, 3, 3]


def test_long_queries_make_smaller_query_batches() -> None:
    for resident, residues in ((True, 6144), (False, 8192)):
        found = _query_batches(queries([1000] * 64 + [40000]), [FakeGroup(resident)])  # type: ignore[list-item]
        totals = [sum(len(query.codes) for query in batch) for batch, _ in found]
        assert max(totals[:-1]) == residues // 1000 * 1000 and totals[-1] == 40000


@pytest.mark.parametrize("block", [4, 8, 64])
@pytest.mark.parametrize("alignment", [1, 4])
def test_gathered_sequences_are_aligned_copies(block: int, alignment: int) -> None:
    rng = np.random.default_rng(2)
    lengths = np.array([1, 3, 4, 5, 9, 16, 0, 2], np.int32)
    padded = -(-lengths.astype(np.int64) // alignment) * alignment
    targets = SequenceArrays(
        rng.integers(0, 21, padded.sum()).astype(np.uint8), np.cumsum(padded) - padded, lengths
    )
    for indices in ([], [4], [0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 2, 2]):
        gathered = targets.gather(np.array(indices, np.int64), block)
        assert len(gathered.residues) == block * (1 + sum(-(-lengths[index] // block) for index in indices))
        assert not gathered.residues[-block:].any()
        assert gathered.lengths.tolist() == lengths[indices].tolist()
        assert not (gathered.offsets % block).any()
        for k, index in enumerate(indices):
            assert gathered.codes(k).tolist() == targets.codes(index).tolist()
    if block == alignment:
        assert (targets.gather(np.arange(8)).residues[:-4] == targets.residues).all()


def test_processes_divide_the_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, compiled = {3}, list[int]()

    def compile_into(folder: Path, kernel: int, capability: tuple[int, int]) -> None:
        compiled.append(kernel)
        cached.add(kernel)
        # the other process compiles another kernel meanwhile, except at the end
        if kernel < 4:
            cached.add(kernel + 1)

    monkeypatch.setattr(kernel_compiler, "is_cached", lambda kernel, capability, folder: kernel in cached)
    monkeypatch.setattr(kernel_compiler, "compile_into", compile_into)
    progress: list[tuple[int, int]] = []
    device = Device.of_architecture("", (9, 0))

    def report(done: int, needed: int) -> None:
        progress.append((done, needed))

    one, other = (KernelCompiler(tmp_path, report, (index, 2), device) for index in range(2))
    one._compile_missing(range(7))  # type: ignore[arg-type]
    # 0 1 2 4 5 6 are missing, and 0 2 5 are its share; then 1 is cached, 4 and 6 are not
    assert compiled == [0, 2, 5, 4, 6]
    assert progress[0] == (0, 3) and progress[-1] == (5, 5)
    # the other process finds all of them cached, and reports nothing
    progress.clear()
    other._compile_missing(range(7))  # type: ignore[arg-type]
    assert len(compiled) == 5 and not progress
