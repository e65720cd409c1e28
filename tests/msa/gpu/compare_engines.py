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

from msa.build import BuildSettings, build_database
from msa.database import TargetDatabase
from msa.fasta import FastaRecord
from msa.gpu import alignment, engine, filtering
from msa.gpu.devices import GpuUnavailable, find_gpu
from msa.gpu.engine import GpuEngine, GpuSettings
from msa.gpu.memory import OutOfGpuMemory, allocate_on_gpu
from msa.search import SearchSettings, search_many

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")

folder = Path(sys.argv[1])
rng = np.random.default_rng(1)
words = ["".join(rng.choice(LETTERS, 12)) for _ in range(3)]
# the same sequence three times: their scores are equal, and two of the three pass
sequences = [words[0], words[1] + words[0][:9], words[0][:5] + "G" + words[0][5:], *[words[2]] * 3]
sequences += ["".join(rng.choice(LETTERS, length)) for length in (1, 7, 11)]
(folder / "t.fasta").write_text("".join(f">t{k}\n{s}\n" for k, s in enumerate(sequences)))
build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
database = TargetDatabase.open(folder / "db")
queries = [FastaRecord(f"q{k}", s) for k, s in enumerate([words[0], words[1], words[2], "WW", words[0][3:]])]
settings = SearchSettings(evalue=60.0, max_seqs=2, min_ungapped_score=8)
engine._BATCH = engine._STREAMED_BATCH = 2  # of five queries: the last batch is short


def plain(found: Any) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (
                h.target,
                h.id,
                h.score,
                h.evalue,
                h.bits,
                h.qstart,
                h.qend,
                h.tstart,
                h.tend,
                h.cigar,
                h.identity,
            )
            for h in hits
        ]
        for _, hits in found
    ]


expected = plain(search_many(queries, database, settings))
assert len({len(hits) for hits in expected}) > 1, "no hit is left out by its E-value"


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


def compare(name: str, gpus: int = 1, **how: Any) -> None:
    pairs: list[int] = []
    own = GpuEngine([find_gpu()] * gpus, GpuSettings(folder / "kernels", **how))
    found = plain(search_many(queries, database, settings, own, lambda done, total: pairs.append(done)))
    assert found == expected, f"{name}: {found}\n{expected}"
    assert pairs[-1] == len(queries) * len(database), pairs
    # what is there serves another search, of which only the beginning is wanted
    again = search_many(queries, database, settings, own)
    assert plain([next(again)]) == expected[:1]
    again.close()
    print(f"{name}: {sum(map(len, found))}", flush=True)


compare("kernels")
for module, *names in (
    (filtering, "QueryFilter", "BestTargets"),
    (alignment, "end_positions", "trace_paths"),
):
    for name in names:
        setattr(module, name, getattr(cpu_kernels, name))
compare("resident")
compare("several chunks", most_chunk_bytes=1)
compare("streamed", most_bytes=150)
compare("queries shared out", gpus=2)
engine._REPLICATED_BYTES = 0
compare("targets shared out", gpus=2)
compare("targets shared out and streamed", gpus=2, most_bytes=150)
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
