"""Compare the hits of both engines on a tiny database, in every way a GPU can hold it.

compare_engines.py FOLDER, under the simulator, prints a line for each way: its name and how many hits were
equal.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cpu_kernels
import numpy as np

from msa.gpu import alignment, engine
from msa.gpu.compiling import Compiling
from msa.gpu.devices import GpuUnavailable, find_gpu
from msa.gpu.engine import GpuEngine
from msa.gpu.memory import Allocate, OutOfGpuMemory, allocate_on_gpu
from msa.gpu.remote import RemoteWorker
from msa.gpu.settings import GpuSettings
from msa.gpu.worker import Worker
from msa.search.engine_selection import EngineSettings, create_engine
from msa.search.settings import SearchSettings
from tests.msa.gpu.tiny import BATCH, CLUSTERS, Tiny

folder = Path(sys.argv[1])
tiny = Tiny(folder)
(folder / "clustered").mkdir()
clustered = Tiny(folder / "clustered", CLUSTERS)
engine._BATCH = engine._STREAMED_BATCH = BATCH


class Failing:
    """`allocate` that fails at its call number `at`, and once only."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, count: int, dtype: np.dtype[Any]) -> Any:
        self.left -= 1
        if not self.left:
            raise OutOfGpuMemory(count * dtype.itemsize)
        return allocate_on_gpu(count, dtype)


@contextmanager
def failing(name: str, fails: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """`alignment.name` that finds no memory where `fails` says so of its call's number and its pairs."""
    real, calls = getattr(alignment, name), []

    def instead(queries: Any, targets: Any, pairs: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(len(pairs))
        if fails(len(calls), len(pairs)):
            raise OutOfGpuMemory(12345)
        return real(queries, targets, pairs, *arguments, **keywords)

    setattr(alignment, name, instead)
    try:
        yield calls
    finally:
        setattr(alignment, name, real)


@contextmanager
def failing_find(at: int) -> Iterator[list[int]]:
    """BestTargets.find that finds no memory at its call number `at`, once its work is queued."""
    real, calls = cpu_kernels.BestTargets.find, []

    def instead(*arguments: Any) -> None:
        real(*arguments)
        calls.append(arguments[-2])  # the chunk's first target
        if len(calls) == at:
            raise OutOfGpuMemory(12345)

    cpu_kernels.BestTargets.find = instead
    try:
        yield calls
    finally:
        cpu_kernels.BestTargets.find = real


def compare(name: str, allocate: Allocate = allocate_on_gpu, tiny: Tiny = tiny, **how: Any) -> None:
    gpu_settings = GpuSettings(folder / "kernels", **how)
    compiling = Compiling(gpu_settings.kernels, lambda done, needed: None)
    own = GpuEngine([Worker(find_gpu(), gpu_settings, compiling, allocate)])
    tiny.check(own, name)
    own.close()
    print(f"{name}: {sum(map(len, tiny.expected))}", flush=True)


def compare_chosen(name: str, most_gpu_bytes: int | None, kind: type) -> None:
    """What a command gets, and which process has the GPU in the end."""
    own = create_engine(EngineSettings("cuda", folder / "kernels", max_database_bytes=most_gpu_bytes), print)
    assert isinstance(own, GpuEngine)
    tiny.check(own, name)
    (member,) = own.members
    assert isinstance(member, kind), member
    own.close()
    print(f"{name}: {sum(map(len, tiny.expected))}", flush=True)


compare("kernels")
compare_chosen("chosen, passing through", 150, RemoteWorker)
cpu_kernels.use()
compare_chosen("chosen, resident", None, Worker)
compare("resident")
compare("clusters", tiny=clustered)
compare("clusters in several chunks", tiny=clustered, most_chunk_bytes=1)
another = SearchSettings(
    evalue=60.0, max_seqs=2, min_ungapped_score=8, matrix="PAM30", gap_open=9, profile_gap_open=8,
    num_iterations=2,
)  # fmt: skip
(folder / "another").mkdir()
compare("another matrix, iterated", tiny=Tiny(folder / "another", settings=another))
compare("several chunks", most_chunk_bytes=1)
compare("streamed", most_bytes=150)
for at in range(1, 12, 2):
    compare(f"no memory at allocation {at}", allocate=Failing(at))
# of a batch of two queries, the first has been found in that chunk when there is no memory for the second
for at in 2, 6:
    with failing_find(at) as firsts:
        compare(f"no memory in the middle of chunk {at // 2}", most_bytes=150)
        assert len(firsts) > at and firsts[at - 1] == firsts[at - 2]
with failing("end_positions", lambda call, pairs: call == 1):
    compare("no memory for scores")
with failing("trace_paths", lambda call, pairs: pairs > 1) as calls:
    compare("no memory for two paths")
    assert max(calls) > 1
for name in "end_positions", "trace_paths":
    with failing(name, lambda call, pairs: True):
        try:
            compare("no memory at all")
        except GpuUnavailable as error:
            assert "12345 bytes" in error.reason, error.reason
        else:
            raise AssertionError(name)
try:
    compare("no memory for a target", allocate=lambda count, dtype: Failing(1)(count, dtype))
except GpuUnavailable as error:
    assert "no memory left for a single target" in error.reason and "are free" in error.reason
else:
    raise AssertionError("a search without memory")
