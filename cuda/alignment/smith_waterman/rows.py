"""Row kernels for pairs of some queries and targets: what is copied to the GPU and launched, and when."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.smith_waterman.kernel import Kind, row_kernel
from cuda.alignment.smith_waterman.pairs import DeviceTargets, Pairs, Query
from cuda.alignment.smith_waterman.plan import Plan, RowLaunch, first_places, packed_uses, plan, wide_uses
from cuda.alignment.smith_waterman.shapes import Shapes, narrowest
from cuda.alignment.smith_waterman.sorting import (
    BUCKETS,
    SUMMARY,
    THREADS,
    arrange_profiles,
    clear,
    count_pairs,
    place_pairs,
    scan_counts,
    sorting_kernel,
)
from cuda.alignment.smith_waterman.source import ENTRY

Allocate = Callable[[int, np.dtype[Any]], Any]
"""(numbers, their kind) → device array of at least so many; may raise what it likes."""


def device_array(count: int, dtype: np.dtype[Any]) -> Any:
    """As numba allocates."""
    return cuda.device_array(count, dtype)


@dataclass(frozen=True)
class _Sorting:
    """Pairs whose order is being found.

    Args:
        n: how many.
        query, target: device int32 and int64 [n].
        counts: device int32 [queries · BUCKETS].
        buckets, order: device int32 [n].
        found: device int32 [ENTRY · (n + 1)].
        traced: rows end where the alignments do.
    """

    n: int
    query: Any
    target: Any
    counts: Any
    buckets: Any
    order: Any
    found: Any
    traced: bool


@dataclass(frozen=True)
class Prepared:
    """Launches that may be run again and again.

    Args:
        launches: of row kernels.
        arguments: what they take.
        query, target: device int32 and int64 [n], of the pairs.
    """

    launches: list[RowLaunch]
    arguments: list[tuple[Any, ...]]
    query: Any
    target: Any


@cache
def _side_stream(device: int, number: int) -> Any:
    return cuda.stream()


def batches(costs: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive pieces whose costs sum to at most `most`, or of a single item."""
    sums = np.cumsum(costs)
    first = 0
    while first < len(costs):
        before = sums[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(sums, before + most, side="right")))
        yield first, end
        first = end


def _twice(value: int) -> np.int32:
    """A number in both halves of a word."""
    return np.array([value, value], np.int16).view(np.int32)[0]


class Rows:
    """Launches row kernels.

    Args:
        queries, targets: what is aligned.
        gap_open, gap_extend: half-bits.
        shapes: to choose from.
        stream: what everything is queued on.
        kernels: folder of compiled kernels.
        allocate: gives all GPU memory; what it raises is passed on, and nothing is left behind.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        targets: DeviceTargets,
        gap_open: int,
        gap_extend: int,
        shapes: Shapes,
        stream: Any,
        kernels: Path | None,
        allocate: Allocate,
    ) -> None:
        self.targets, self.shapes, self.stream = targets, shapes, stream
        self.gap_open, self.gap_extend = gap_open, gap_extend
        self._kernels, self._allocate = kernels, allocate
        self.lengths = np.array([len(query.profile) for query in queries], np.int64)
        wide = [(shape.lanes, shape.columns) for shape in shapes.wide]
        self.traced_shapes = np.array(wide)[narrowest(shapes.wide, self.lengths)]
        extents = np.stack([first_places(self.lengths), self.lengths, *self.traced_shapes.T], axis=1)
        self.queries = self.upload(extents, np.int32)
        self.profile = np.concatenate([query.profile for query in queries])
        self.scores = self.upload(self.profile, np.int16)

    def empty(self, count: int, dtype: Any = np.int32) -> Any:
        room = self._allocate(max(count, 1), np.dtype(dtype))
        return room if room.size == max(count, 1) else room[: max(count, 1)]

    def upload(self, array: np.ndarray, dtype: Any) -> Any:
        """A flat copy on the GPU."""
        flat = np.ascontiguousarray(array, dtype).reshape(-1)
        there = self.empty(flat.size, dtype)
        there.copy_to_device(flat, stream=self.stream)
        return there

    def download(self, array: Any, there: np.ndarray | None = None) -> np.ndarray:
        """A copy on the host, when all that is queued is done."""
        copy = array.copy_to_host(there, stream=self.stream)
        if self.stream:
            self.stream.synchronize()
        return copy

    def found(self, n: int) -> Any:
        """Room for a flag, and score and end of so many pairs."""
        return self.empty(ENTRY * (n + 1))

    def packed(self, pairs: Pairs, found: Any) -> tuple[Prepared, bool]:
        """Prepare 16-bit scoring, and mark the pairs that are not aligned by it in `found` with score −1.

        Returns:
            The launches, and whether they leave out a query.
        """
        work = self._sorted(pairs, found, traced=False)
        summary = self.empty(SUMMARY * len(self.lengths))
        self._scan(work, summary)
        long, filled, outside = self.download(summary).reshape(-1, SUMMARY).T.astype(np.int64)
        fits = (outside == 0) & (self.lengths <= self.shapes.packed[-1].width) & (self.gap_open < 2**13)
        uses = packed_uses(self.lengths, long, filled, fits, self.shapes, len(pairs))
        prepared = self._prepared(
            work, plan("packed", self.lengths, first_places(filled), uses),
            (_twice(-self.gap_open), _twice(-self.gap_extend)), (found,),
        )  # fmt: skip
        return prepared, bool((filled[~fits] > 0).any())

    def wide(
        self, kind: Kind, pairs: Pairs, found: Any, starts: Any, border: Any, directions: Any
    ) -> Prepared:
        """Prepare 32-bit scoring or tracing of pairs that are not empty; see `wide_source`."""
        work = self._sorted(pairs, found, kind == "traced")
        self._scan(work, self.empty(SUMMARY * len(self.lengths)))
        counts = np.bincount(pairs.query, minlength=len(self.lengths))
        uses = wide_uses(self.lengths, counts, self.shapes.wide)
        costs = np.int32(-self.gap_open), np.int32(-self.gap_extend)
        return self._prepared(
            work, plan(kind, self.lengths, first_places(counts), uses), costs,
            (starts, border, directions, found),
        )  # fmt: skip

    def _sorted(self, pairs: Pairs, found: Any, traced: bool) -> _Sorting:
        n = len(pairs)
        counts = self.empty(len(self.lengths) * BUCKETS)
        query, target = self.upload(pairs.query, np.int32), self.upload(pairs.target, np.int64)
        return _Sorting(n, query, target, counts, self.empty(n), self.empty(n), found, traced)

    def _scan(self, work: _Sorting, summary: Any) -> None:
        """Count, up to where the pairs of each query begin."""
        self._queue(clear, -(-work.counts.size // (8 * THREADS)), work.counts)
        self._queue(
            count_pairs, -(-work.n // THREADS),
            work.query, work.target, self.targets.lengths, work.found, work.traced, work.counts, work.buckets,
        )  # fmt: skip
        self._queue(scan_counts, len(self.lengths), work.counts, self.queries, self.scores, summary)

    def _prepared(
        self, work: _Sorting, planned: Plan, costs: tuple[Any, ...], rest: tuple[Any, ...]
    ) -> Prepared:
        """Put pairs and profiles in place, and say what the row kernels take."""
        table, profiles = self.upload(planned.table, np.int32), self.empty(planned.words)
        self._queue(
            place_pairs, -(-work.n // THREADS),
            work.query, work.buckets, work.counts, table, work.order, work.found, work.traced,
        )  # fmt: skip
        if planned.launches:
            self._queue(arrange_profiles, planned.tiles, self.scores, table, planned.tasks, profiles)
        common = (
            self.targets.residues, self.targets.offsets, self.targets.lengths, work.target, work.order,
            profiles, table,
        )  # fmt: skip
        arguments = [(*common, launch.first, *costs, *rest) for launch in planned.launches]
        return Prepared(planned.launches, arguments, work.query, work.target)

    def _queue(self, function: Any, blocks: int, *arguments: Any) -> None:
        sorting_kernel(function)[blocks, THREADS, self.stream](*arguments)

    def launch(self, prepared: Prepared, k: int, stream: Any) -> None:
        """Queue one of the launches on a stream."""
        one = prepared.launches[k]
        row_kernel(one.kind, one.shape, self._kernels)[one.blocks, one.shape.threads, stream](
            *prepared.arguments[k]
        )

    def run(self, prepared: Prepared) -> None:
        """Run the launches side by side, so that the last long targets of one wait for no other."""
        count = len(prepared.launches)
        if count < 2:
            for k in range(count):
                self.launch(prepared, k, self.stream)
            return
        device = getattr(cuda.get_current_device(), "id", 0)
        ready = cuda.event()
        ready.record(self.stream)
        finished = []
        for k in range(count):
            stream, done = _side_stream(device, k), cuda.event()
            ready.wait(stream)
            self.launch(prepared, k, stream)
            done.record(stream)
            finished.append(done)
        # not before the last launch: a wait on the default stream would hold up every launch after it
        for done in finished:
            done.wait(self.stream)
