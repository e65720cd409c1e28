"""The GPU engine in numba's simulator finds the same hits as the CPU engine."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa.base.errors import OutOfGpuMemory
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.gpu import engine
from msa.gpu.device.devices import GpuUnavailable, find_gpu
from msa.gpu.device.memory import Allocate, allocate_on_gpu
from msa.gpu.engine import GpuEngine
from msa.gpu.remote_worker import RemoteWorker
from msa.gpu.worker import alignment, filtering
from msa.gpu.worker.interface import GpuSettings
from msa.gpu.worker.local_worker import LocalWorker
from msa.gpu.worker.process_start import GpuProcess
from msa.io.fasta import FastaRecord
from msa.profile import statistics
from msa.search import windows
from msa.search.database_search import search_many
from msa.search.engine_selection import create_engine
from tests.msa.gpu import cpu_kernels
from tests.msa.gpu.tiny_search import BATCH_QUERIES, CLUSTERS, TinySearch, as_table

pytestmark = pytest.mark.simulator

# shared by all tests of the simulator process; removed when it ends
FOLDER = tempfile.TemporaryDirectory()
ITERATED = SearchSettings(
    evalue=60.0, max_seqs=2, min_ungapped_score=8, matrix="PAM30", gap_open=9, profile_gap_open=8,
    num_iterations=2,
)  # fmt: skip


@cache
def tiny_search(clusters: str | None = None, settings: SearchSettings | None = None) -> TinySearch:
    return TinySearch(Path(tempfile.mkdtemp(dir=FOLDER.name)), clusters, settings)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_BATCH_QUERIES", BATCH_QUERIES)
    monkeypatch.setattr(engine, "_STREAMED_BATCH_QUERIES", BATCH_QUERIES)
    monkeypatch.setattr(filtering, "SELECTED_QUERIES", 1)


@pytest.fixture
def fast_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use CPU kernels, as the simulator takes minutes for the real ones."""
    for module, name, replacement in cpu_kernels.replacements():
        monkeypatch.setattr(module, name, replacement)


class FailingAllocator:
    """An allocator whose n-th call fails, once."""

    def __init__(self, failing: int) -> None:
        self.left = failing

    def __call__(self, count: int, dtype: np.dtype[Any]) -> Any:
        self.left -= 1
        if not self.left:
            raise OutOfGpuMemory(count * dtype.itemsize)
        return allocate_on_gpu(count, dtype)


def check(tiny: TinySearch, allocate: Allocate = allocate_on_gpu, **settings: Any) -> None:
    """Search with a GPU engine, and compare the hits with those of the CPU."""
    gpu_settings = GpuSettings(Path(FOLDER.name) / "kernels", **settings)
    gpu_engine = GpuEngine([LocalWorker(find_gpu(), gpu_settings, allocate=allocate)])
    try:
        tiny.check(gpu_engine)
    finally:
        gpu_engine.close()
    assert sum(map(len, tiny.expected)) >= 5


@pytest.mark.usefixtures("fast_kernels")
def test_windows_of_long_queries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without = tiny_search().filtered
    monkeypatch.setattr(windows, "WINDOW", 8)
    monkeypatch.setattr(windows, "OVERLAP", 4)
    tiny = TinySearch(tmp_path)
    assert tiny.filtered != without
    check(tiny)


@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("window", [8, 2000])
def test_limit_of_lengths(window: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(windows, "WINDOW", window)
    monkeypatch.setattr(windows, "OVERLAP", window // 2)
    (tmp_path / "without").mkdir()
    without = TinySearch(tmp_path / "without").filtered
    monkeypatch.setattr(statistics, "_CHANCE_TARGETS", 0.5)
    monkeypatch.setattr(statistics, "_CHANCE_TARGETS_PER_RESIDUE", 0)
    tiny = TinySearch(tmp_path)
    assert tiny.filtered != without
    check(tiny)
    check(tiny, max_database_bytes=1300)


@pytest.mark.usefixtures("fast_kernels")
def test_evalues_include_second_alignments(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    words = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(4)]
    linkers = ["G" * length for length in (33, 50)]
    # words of the query in the same order, in another, twice, and alone
    targets = [
        linker.join(words[k] for k in order) for linker in linkers for order in ((0, 1), (1, 0), (2, 2))
    ]
    targets += words
    (tmp_path / "t.fasta").write_text("".join(f">t{k}\n{text}\n" for k, text in enumerate(targets)))
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(mask=False, threads=1))
    database = TargetDatabase.open(tmp_path / "db")
    queries = [FastaRecord(f"q{k}", words[k] + words[(k + 1) % 4]) for k in range(4)]
    queries.insert(2, FastaRecord("unrelated", "WWWW"))
    options = SearchSettings(evalue=10.0, min_ungapped_score=8)
    expected = as_table(search_many(queries, database, options))
    # the bits are those of the best alignment, and E-values grow with the length of the target
    per_residue = {hit[0]: hit[3] / database.arrays.lengths[hit[0]] for hit in expected[0]}
    of_single = [value for index, value in per_residue.items() if index < 4]
    assert of_single and min(per_residue.values()) < min(of_single) / 100
    gpu_engine = GpuEngine([LocalWorker(find_gpu(), GpuSettings(Path(FOLDER.name) / "kernels"))])
    try:
        assert as_table(search_many(queries, database, options, engine=gpu_engine)) == expected
    finally:
        gpu_engine.close()


def fail_without_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, fails: Callable[[int, int], bool]
) -> list[int]:
    """Let an alignment function run out of memory.

    Args:
        monkeypatch: the fixture.
        name: "end_positions" or "trace_paths".
        fails: returns whether a call fails, given its number from 1 and its number of pairs.

    Returns:
        The number of pairs of each call.
    """
    original, calls = getattr(alignment, name), []

    def replacement(*arguments: Any, **keywords: Any) -> Any:
        (count,) = (len(argument) for argument in arguments if isinstance(argument, alignment.Pairs))
        calls.append(count)
        if fails(len(calls), count):
            raise OutOfGpuMemory(12345)
        return original(*arguments, **keywords)

    monkeypatch.setattr(alignment, name, replacement)
    return calls


@pytest.mark.slow
def test_streamed_database_is_searched_in_a_separate_process() -> None:
    """Check the hits of the real kernels, which other tests replace in this process."""
    settings = GpuSettings(Path(FOLDER.name) / "kernels", max_database_bytes=150)
    gpu_engine = create_engine("cuda", settings, print)
    assert isinstance(gpu_engine, GpuEngine)
    tiny = tiny_search()
    # one query, as the simulator takes seconds for each
    results = search_many(tiny.queries[:1], tiny.database, tiny.settings, engine=gpu_engine)
    assert as_table(results) == tiny.expected[:1]
    assert [type(worker) for worker in gpu_engine.workers] == [RemoteWorker]
    gpu_engine.close()


def test_process_started_ahead_is_used() -> None:
    settings = GpuSettings(Path(FOLDER.name) / "kernels")
    gpu_engine = create_engine("cuda", settings, print, started=GpuProcess(0))
    assert isinstance(gpu_engine, GpuEngine)
    assert [type(worker) for worker in gpu_engine.workers] == [RemoteWorker]
    gpu_engine.close()
    # the simulator has a single GPU
    with pytest.raises(GpuUnavailable, match="no GPU number 1"):
        create_engine("cuda:1", settings, pytest.fail)


@pytest.mark.usefixtures("fast_kernels")
def test_resident_database_is_searched_in_this_process() -> None:
    gpu_engine = create_engine("cuda", GpuSettings(Path(FOLDER.name) / "kernels"), print)
    assert isinstance(gpu_engine, GpuEngine)
    tiny_search().check(gpu_engine)
    assert [type(worker) for worker in gpu_engine.workers] == [LocalWorker]
    gpu_engine.close()


@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("settings", [{}, {"max_chunk_bytes": 1}, {"max_database_bytes": 150}], ids=str)
def test_hits_of_resident_chunked_and_streamed_databases(settings: dict[str, int]) -> None:
    check(tiny_search(), **settings)


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("settings", [{}, {"max_chunk_bytes": 1}], ids=str)
def test_hits_of_clustered_databases(settings: dict[str, int]) -> None:
    check(tiny_search(CLUSTERS), **settings)


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
def test_hits_of_iterated_search_with_another_matrix() -> None:
    check(tiny_search(settings=ITERATED))


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("number", range(1, 12, 2))
def test_hits_after_a_failed_allocation(number: int) -> None:
    check(tiny_search(), FailingAllocator(number))


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("number", [2, 6])
def test_hits_after_memory_runs_out_within_a_batch(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out for one group of queries after an earlier one has been filtered in the chunk."""
    original, firsts = cpu_kernels.TopKSelector.select, []

    def replacement(*arguments: Any) -> None:
        original(*arguments)
        firsts.append(arguments[-2])  # the chunk's first target
        if len(firsts) == number:
            raise OutOfGpuMemory(12345)

    monkeypatch.setattr(cpu_kernels.TopKSelector, "select", replacement)
    check(tiny_search(), max_database_bytes=150)
    assert len(firsts) > number and firsts[number - 1] == firsts[number - 2]


@pytest.mark.usefixtures("fast_kernels")
def test_selectors_share_their_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers belong to a stream as long as the process runs."""
    made: list[str] = []
    for name in "TopKSelector", "SelectionStreams":
        original = getattr(filtering, name)

        def recorded(*options: Any, name: str = name, original: Any = original) -> Any:
            made.append(name)
            return original(*options)

        monkeypatch.setattr(filtering, name, recorded)
    select, calls = cpu_kernels.TopKSelector.select, []

    def failing_once(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise OutOfGpuMemory(12345)
        select(*arguments)

    # the selector of the first call is replaced
    monkeypatch.setattr(cpu_kernels.TopKSelector, "select", failing_once)
    check(tiny_search())
    assert made.count("TopKSelector") > 1 and made.count("SelectionStreams") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
def test_hits_after_memory_runs_out_for_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_without_memory(monkeypatch, "end_positions", lambda call, pairs: call == 1)
    check(tiny_search())


@pytest.mark.slow
@pytest.mark.usefixtures("fast_kernels")
def test_paths_are_traced_one_by_one_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail_without_memory(monkeypatch, "trace_paths", lambda call, pairs: pairs > 1)
    check(tiny_search())
    assert max(calls) > 1


@pytest.mark.usefixtures("fast_kernels")
@pytest.mark.parametrize("name", ["end_positions", "trace_paths"])
def test_no_memory_for_a_single_alignment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_without_memory(monkeypatch, name, lambda call, pairs: True)
    with pytest.raises(GpuUnavailable, match="12345 bytes"):
        check(tiny_search())


@pytest.mark.usefixtures("fast_kernels")
def test_no_memory_for_a_single_target() -> None:
    with pytest.raises(GpuUnavailable, match=r"no memory left for a single target: .* are free"):
        check(tiny_search(), lambda count, dtype: FailingAllocator(1)(count, dtype))
