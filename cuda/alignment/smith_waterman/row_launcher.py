"""Preparation and launch of the row kernels for one call: uploads, sorting, profiles and streams."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu
from cuda.alignment.device import Device
from cuda.alignment.kernel_cache import KernelSource, compiled_kernel
from cuda.alignment.smith_waterman.generator import ENTRY
from cuda.alignment.smith_waterman.plan import (
    Pairs,
    Plan,
    RowLaunch,
    Shapes,
    assign_packed,
    assign_wide,
    exclusive_sums,
    make_plan,
    narrowest,
)
from cuda.alignment.smith_waterman.signatures import (
    ARRANGE_PROFILES,
    BUCKETS,
    CLEAR,
    COUNT_PAIRS,
    ORDER_PAIRS,
    SCAN_COUNTS,
    SUMMARY,
    THREADS,
    Kind,
    row_kernel,
)

Allocate = Callable[[int, np.dtype[Any]], Any]
"""(elements, dtype) → device array of at least that many elements; may raise any exception."""


@dataclass(frozen=True)
class _Sorting:
    """Pairs that are being sorted.

    Args:
        count: number of pairs (n).
        query, target: device int32 and int64 [n].
        counts: device int32 [queries · BUCKETS].
        buckets, order: device int32 [n].
        ends: device int32 [ENTRY · (n + 1)].
        traced: whether a pair's rows end where its alignment ends.
    """

    count: int
    query: Any
    target: Any
    counts: Any
    buckets: Any
    order: Any
    ends: Any
    traced: bool


@dataclass(frozen=True)
class PreparedRows:
    """Launches of row kernels with their arguments; may be run repeatedly.

    Args:
        launches: launches of row kernels.
        arguments: arguments of each launch.
        query, target: device int32 and int64 [n], the pairs.
    """

    launches: list[RowLaunch]
    arguments: list[tuple[Any, ...]]
    query: Any
    target: Any


@cache
def _side_stream(device: int, thread: int) -> Any:
    """Return a thread's second stream; its high priority keeps it from waiting for the filter."""
    return gpu.new_stream(urgent=True)


def split_by_cost(costs: np.ndarray, max_cost: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges whose costs sum to at most `max_cost`, or that contain a single item."""
    sums = np.cumsum(costs)
    first = 0
    while first < len(costs):
        before = sums[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(sums, before + max_cost, side="right")))
        yield first, end
        first = end


def _in_both_halves(value: int) -> np.int32:
    """Return a word that contains a 16-bit number twice."""
    return np.array([value, value], np.int16).view(np.int32)[0]


class RowLauncher:
    """Runs row kernels for some queries and targets.

    Args:
        profiles: int16 [length ≥ 1, 32] of each query, half-bits.
        targets: the sequences that the pairs refer to.
        gap_open, gap_extend: half-bits.
        shapes: the shapes to choose from.
        stream: stream on which everything is queued.
        kernels: folder of compiled kernels.
        allocate: allocates all GPU memory; its exceptions are passed on.
    """

    def __init__(
        self,
        profiles: Sequence[np.ndarray],
        targets: DeviceSequences,
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
        self.lengths = np.array([len(profile) for profile in profiles], np.int64)
        wide = [(shape.lanes, shape.columns) for shape in shapes.wide]
        self.traced_shapes = np.array(wide)[narrowest(shapes.wide, self.lengths)]
        extents = np.stack([exclusive_sums(self.lengths), self.lengths, *self.traced_shapes.T], axis=1)
        self.queries = self.upload(extents, np.int32)
        self.profile = np.concatenate(profiles)
        self.scores = self.upload(self.profile, np.int16)

    def empty(self, count: int, dtype: Any = np.int32) -> Any:
        """Allocate a device array."""
        array = self._allocate(max(count, 1), np.dtype(dtype))
        return array if array.size == max(count, 1) else array[: max(count, 1)]

    def upload(self, array: np.ndarray, dtype: Any) -> Any:
        """Copy an array, flattened, to the GPU."""
        flat = np.ascontiguousarray(array, dtype).reshape(-1)
        device_copy = self.empty(flat.size, dtype)
        device_copy.copy_to_device(flat, stream=self.stream)
        return device_copy

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Wait for all queued work, and copy an array to the host."""
        copy = array.copy_to_host(out, stream=self.stream)
        if self.stream:
            self.stream.synchronize()
        return copy

    def allocate_ends(self, n: int) -> Any:
        """Allocate `ends` for n pairs: a flag, then score and end of each pair."""
        return self.empty(ENTRY * (n + 1))

    def prepare_packed(self, pairs: Pairs, ends: Any) -> tuple[PreparedRows, bool]:
        """Prepare 16-bit scoring, and set the score of pairs that it leaves out to −1 in `ends`.

        Returns:
            The launches, and whether they leave out any query.
        """
        work = self._start_sorting(pairs, ends, traced=False)
        summary = self.empty(SUMMARY * len(self.lengths))
        self._count_and_scan(work, summary)
        long, non_empty, outside = self.download(summary).reshape(-1, SUMMARY).T.astype(np.int64)
        fits = (outside == 0) & (self.lengths <= self.shapes.packed[-1].width) & (self.gap_open < 2**13)
        assignments = assign_packed(self.lengths, long, non_empty, fits, self.shapes, len(pairs))
        prepared = self._finish_sorting(
            work, make_plan("packed", self.lengths, exclusive_sums(non_empty), assignments),
            (_in_both_halves(-self.gap_open), _in_both_halves(-self.gap_extend)), (ends,),
        )  # fmt: skip
        return prepared, bool((non_empty[~fits] > 0).any())

    def prepare_wide(
        self, kind: Kind, pairs: Pairs, ends: Any, starts: Any, border: Any, directions: Any
    ) -> PreparedRows:
        """Prepare 32-bit scoring or tracing of non-empty pairs; see `wide_source` for the arrays."""
        work = self._start_sorting(pairs, ends, kind == "traced")
        self._count_and_scan(work, self.empty(SUMMARY * len(self.lengths)))
        counts = np.bincount(pairs.query, minlength=len(self.lengths))
        assignments = assign_wide(self.lengths, counts, self.shapes.wide)
        costs = np.int32(-self.gap_open), np.int32(-self.gap_extend)
        return self._finish_sorting(
            work, make_plan(kind, self.lengths, exclusive_sums(counts), assignments), costs,
            (starts, border, directions, ends),
        )  # fmt: skip

    def launch(self, prepared: PreparedRows, k: int, stream: Any) -> None:
        """Queue launch k on a stream."""
        launch = prepared.launches[k]
        row_kernel(launch.kind, launch.shape, self._kernels)[launch.blocks, launch.shape.threads, stream](
            *prepared.arguments[k]
        )

    def run(self, prepared: PreparedRows) -> None:
        """Queue the launches on two streams in turn, so that the last targets of one delay few others.

        With more streams, some would share one of the driver's eight queues with the filter, and wait for it.
        """
        count = len(prepared.launches)
        if count < 2:
            for k in range(count):
                self.launch(prepared, k, self.stream)
            return
        side = _side_stream(Device.current().number, threading.get_ident())
        ready, done = gpu.event(), gpu.event()
        ready.record(self.stream)
        ready.wait(side)
        for k in range(count):
            self.launch(prepared, k, side if k % 2 else self.stream)
        done.record(side)
        done.wait(self.stream)

    def _start_sorting(self, pairs: Pairs, ends: Any, traced: bool) -> _Sorting:
        n = len(pairs)
        counts = self.empty(len(self.lengths) * BUCKETS)
        query, target = self.upload(pairs.query, np.int32), self.upload(pairs.target, np.int64)
        return _Sorting(n, query, target, counts, self.empty(n), self.empty(n), ends, traced)

    def _count_and_scan(self, work: _Sorting, summary: Any) -> None:
        """Queue the counting sort up to the first position of each bucket."""
        self._queue(CLEAR, -(-work.counts.size // (8 * THREADS)), work.counts)
        self._queue(
            COUNT_PAIRS, -(-work.count // THREADS),
            work.query, work.target, self.targets.lengths, work.ends, work.traced, work.counts, work.buckets,
        )  # fmt: skip
        self._queue(SCAN_COUNTS, len(self.lengths), work.counts, self.queries, self.scores, summary)

    def _finish_sorting(
        self, work: _Sorting, plan: Plan, costs: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> PreparedRows:
        """Queue the ordering of the pairs and the layout of the profiles; return the launches."""
        table, profiles = self.upload(plan.table, np.int32), self.empty(plan.words)
        self._queue(
            ORDER_PAIRS, -(-work.count // THREADS),
            work.query, work.buckets, work.counts, table, work.order, work.ends, work.traced,
        )  # fmt: skip
        if plan.launches:
            self._queue(ARRANGE_PROFILES, plan.tiles, self.scores, table, plan.tasks, profiles)
        common = (
            self.targets.residues, self.targets.offsets, self.targets.lengths, work.target, work.order,
            profiles, table,
        )  # fmt: skip
        arguments = [(*common, launch.first, *costs, *outputs) for launch in plan.launches]
        return PreparedRows(plan.launches, arguments, work.query, work.target)

    def _queue(self, kernel: KernelSource, blocks: int, *arguments: Any) -> None:
        compiled_kernel(kernel)[blocks, THREADS, self.stream](*arguments)
