"""Selection of the k best targets of queries, several at once, without waiting for the host."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu
from cuda.alignment.device import Device, new_stream
from cuda.alignment.gapless import (
    GaplessBounder,
    ListScorer,
    ProfileLimits,
    TargetLists,
    UploadedArray,
    UploadedTable,
    profile_limits,
)
from cuda.alignment.gapless.lists import STATE_SIZE
from cuda.alignment.kernel_cache import KernelSource, compiled_kernel
from cuda.alignment.top_k.layout import BINS, CHOOSE, COUNT_BOUNDS, LIST_BOUNDS, NARROW, THREADS, row_size

NUM_STREAMS = 2
"""Number of streams for bounds. Those of a query fill the GPU until its last targets are finished; then those
of the next query begin. More streams would share the driver's eight queues with streams for alignments, which
would then wait for bounds."""

_BOUND_SETS = 2
"""Number of batches whose bounds are kept: one is being bounded while targets of another are selected."""

_EXTRA_DIVISOR = 4
"""At first, at least k + k / _EXTRA_DIVISOR targets are listed, so that few others have to be scored, which
include few long targets; these take longest."""

_LIST_THREADS, _LIST_BLOCKS = 128, 8
"""Threads per block, and blocks per multiprocessor, of the kernels that read all bounds."""

_SMALL_TARGET_BITS, _LARGE_TARGET_BITS = 22, 31
"""Bits of a database index in a key."""


class BoundAndScore(Protocol):
    """Upper bounds and exact scores of a batch of queries; all work is queued on the given stream."""

    def __len__(self) -> int:
        """Return the number of queries."""

    @property
    def stretch(self) -> int:
        """Residues per stretch of the lists."""

    def bound_all(self, query: int, targets: DeviceSequences, bounds: Any, stream: Any) -> None:
        """Bound the scores of all targets, device int16 [≥ n]: no less than the score, or 2¹⁵ − 1."""

    def score(self, targets: DeviceSequences, lists: TargetLists, stream: Any) -> None:
        """Compute the exact scores of the unscored listed targets; see ListScorer."""

    def longest(self, stream: Any) -> Any:
        """Return the length of the longest target that may be selected, by score, for work on a stream.

        Returns:
            Device int32 [queries, ≥ 1]; the last length of a query is that of all higher scores, too.
        """


class GaplessBatch:
    """Gapless bounds and exact scores of a batch of queries.

    Args:
        profiles: int [query length ≥ 1, 32] each, half-bits; column = letter code.
        kernels: folder for generated and compiled kernels.
        limits: from `profile_limits`; computed if None.
        longest: int32 [queries, ≥ 1], see BoundAndScore; None to select targets of any length.

    Raises:
        ValueError: a profile has another shape.
        OSError: the folder is not writable.
    """

    def __init__(
        self,
        profiles: Sequence[np.ndarray],
        kernels: Path,
        limits: Sequence[ProfileLimits] | None = None,
        longest: np.ndarray | None = None,
    ) -> None:
        limits = limits or profile_limits(profiles)
        self._bounders = [
            GaplessBounder(profile, kernels, limits=of_query)
            for profile, of_query in zip(profiles, limits, strict=True)
        ]
        self._scorer = ListScorer(profiles, kernels, limits)
        self.score = self._scorer.score
        self.stretch = self._scorer.stretch
        self.longest_table = UploadedArray(any_length(len(profiles)) if longest is None else longest)
        self.longest = self.longest_table.copy_for

    def __len__(self) -> int:
        return len(self._bounders)

    def bound_all(self, query: int, targets: DeviceSequences, bounds: Any, stream: Any) -> None:
        """Bound the scores of all targets; see GaplessBounder."""
        self._bounders[query].bound_all(targets, bounds, stream)

    @property
    def tables(self) -> list[UploadedTable]:
        """The queries' tables, which may be uploaded ahead of time."""
        return [table for owner in (*self._bounders, self._scorer) for table in owner.tables]


def any_length(queries: int) -> np.ndarray:
    """Return the table `longest` of queries whose targets may have any length, int32 [queries, 1]."""
    return np.full((queries, 1), np.iinfo(np.int32).max, np.int32)


class SelectionStreams:
    """The streams of selections on the current GPU; used by one thread, for one selector after the other.

    Buffers belong to a stream as long as the process runs, so streams should be kept.

    Attributes:
        bounds: the bounds of each query are computed on one of them.
        bounded: an event for each of them.
        selection: everything else.
    """

    def __init__(self) -> None:
        self.bounds = [new_stream() for _ in range(NUM_STREAMS)]
        self.bounded = [gpu.event() for _ in range(NUM_STREAMS)]
        self.selection = new_stream(urgent=True)

    def wait_for(self, event: Any) -> None:
        """Let all work that is queued from now on wait for an event."""
        for stream in (*self.bounds, self.selection):
            event.wait(stream)


@dataclass(frozen=True)
class _Bounds:
    """Memory for the bounds of a batch.

    Args:
        matrix: device int64 [queries, ≥ targets / 4], four bounds in each number.
        of_queries: device int16 [≥ targets] of each query, views of it.
        used: event after the last kernel that reads them.
    """

    matrix: Any
    of_queries: Sequence[Any]
    used: Any


class TopKSelector:
    """Selects the k best targets of queries in chunks of a database, on the current GPU.

    In the first chunk, all targets are bounded and those with the highest bounds are scored exactly. The k-th
    best of these scores decides which other targets may still be among the best; these are scored as well,
    which makes the result exact. In later chunks, the k-th best score of the earlier ones decides it, so one
    list is enough. Targets that are too long for their scores are left out.

    Bounds are computed query by query, on several streams; everything else follows for the whole batch on
    another one, while the bounds of the next batch are computed.

    Args:
        k: maximum number of selected targets, ≥ 1.
        min_score: minimum score of a selected target, half-bits.
        capacity: maximum number of targets per chunk.
        queries: maximum number of queries per batch.
        streams: the streams; no other selector may use them any more.
        allocate: (count, dtype) → device array of at least `count` elements; may raise.
    """

    bytes_per_target = 2 * _BOUND_SETS + 3 * 4
    """Device memory for each target of `capacity` and each query of a batch: bounds, and lists."""

    def __init__(
        self,
        k: int,
        min_score: int,
        capacity: int,
        queries: int,
        streams: SelectionStreams,
        allocate: Callable[[int, np.dtype[Any]], Any] = gpu.device_array,
    ) -> None:
        self._k, self._min_score = k, min(max(min_score, 0), 2**31)
        self._capacity, self._queries = capacity, queries
        self._streams = streams

        def matrix(width: int, dtype: type) -> Any:
            size = queries * width
            return allocate(size, np.dtype(dtype))[:size].reshape(queries, width)

        def zeros(width: int) -> Any:
            array = matrix(width, np.int32)
            array.copy_to_device(np.zeros((queries, width), np.int32), stream=streams.selection)
            return array

        self._bound_sets: deque[_Bounds] = deque()
        for _ in range(_BOUND_SETS):
            bounds = matrix(capacity // 4 + 1, np.int64)
            views = [bounds[query].view(np.int16) for query in range(queries)]
            self._bound_sets.append(_Bounds(bounds, views, gpu.event()))
        targets, scores, ends = (matrix(max(capacity, 1), np.int32) for _ in range(3))
        self._lists = TargetLists(targets, scores, ends, zeros(STATE_SIZE))
        self._histogram, self._no_rows = zeros(BINS), zeros(row_size(0))
        self._launched = 0

    def select(
        self,
        batch: BoundAndScore,
        targets: DeviceSequences,
        rows: Any,
        first_row: int = 0,
        first: int = 0,
        previous_rows: Any = None,
    ) -> None:
        """Queue the selection in one chunk and return at once.

        Args:
            batch: a GaplessBatch of at most `queries`.
            targets: the chunk, at most `capacity` targets; see GaplessBounder.bound_all.
            rows: device int32 [≥ first_row + queries, row_size(k)]; a row for each query is written, from
                `first_row` on, by work on the stream `selection`; see `read_row`. Among equal scores at the
                limit, the targets that come first in the database are selected.
            first_row: row of the first query.
            first: database index of the chunk's first target; indices are below 2³¹.
            previous_rows: the rows of other chunks, of the same shape; the result covers these and this
                chunk. Fastest if the chunks with the highest scores come first.

        Raises:
            ValueError: there are more targets than `capacity` or more queries than `queries`, or rows have
                another size.
        """
        count = targets.lengths.size
        if count > self._capacity or len(batch) > self._queries:
            raise ValueError(
                f"the selector has capacity for {self._capacity} targets and {self._queries} queries, "
                f"not for {count} and {len(batch)}"
            )
        for checked in (rows,) if previous_rows is None else (rows, previous_rows):
            if checked.shape[1] != row_size(self._k):
                raise ValueError(
                    f"a row of {self._k} targets has {row_size(self._k)} numbers, not {checked.shape[1]}"
                )
        bounds = self._bound_sets[0]
        self._bound_sets.rotate()
        self._bound(batch, targets, bounds)
        bits = _SMALL_TARGET_BITS if first + count <= 2**_SMALL_TARGET_BITS else _LARGE_TARGET_BITS
        known = self._no_rows if previous_rows is None else previous_rows
        lists, longest = self._lists, batch.longest(self._streams.selection)
        entries = (
            lists.targets, lists.scores, targets.lengths, longest, first, known, first_row, self._min_score,
            self._k, bits, lists.state,
        )  # fmt: skip
        if previous_rows is None:
            self._launch(
                COUNT_BOUNDS, len(batch), bounds.matrix, count, min(self._min_score, BINS - 1),
                self._k + self._k // _EXTRA_DIVISOR, self._histogram, lists.state,
            )  # fmt: skip
            self._list_and_score(batch, targets, bounds, lists.state, 0)
            self._launch(NARROW, len(batch), *entries)
            self._list_and_score(batch, targets, bounds, lists.state, 0)
        else:
            self._list_and_score(batch, targets, bounds, previous_rows, first_row)
        self._launch(CHOOSE, len(batch), *entries, rows)
        bounds.used.record(self._streams.selection)

    def _bound(self, batch: BoundAndScore, targets: DeviceSequences, bounds: _Bounds) -> None:
        """Queue the bounds of a batch; the work queued on `selection` from now on waits for them."""
        streams = self._streams
        for stream in streams.bounds:
            bounds.used.wait(stream)
        for query in range(len(batch)):
            stream = streams.bounds[self._launched % NUM_STREAMS]
            batch.bound_all(query, targets, bounds.of_queries[query], stream)
            self._launched += 1
        for event, stream in zip(streams.bounded, streams.bounds, strict=True):
            event.record(stream)
            event.wait(streams.selection)

    def _list_and_score(
        self, batch: BoundAndScore, targets: DeviceSequences, bounds: _Bounds, limits: Any, limits_row: int
    ) -> None:
        """Append the targets within limits, device int32 [≥ limits_row + queries, ≥ 2], and score them."""
        lists = self._lists
        self._launch(
            LIST_BOUNDS, len(batch), bounds.matrix, targets.lengths.size, limits, limits_row, targets.lengths,
            batch.longest(self._streams.selection), batch.stretch, lists.targets, lists.scores, lists.ends,
            lists.state,
        )  # fmt: skip
        batch.score(targets, lists, self._streams.selection)

    def _launch(self, kernel: KernelSource, queries: int, *arguments: Any) -> None:
        """Queue one of this module's kernels; those that read bounds take several blocks per query."""
        blocks, threads = 1, THREADS
        if kernel in (COUNT_BOUNDS, LIST_BOUNDS):
            grid, threads = Device.current().grid(_LIST_BLOCKS, _LIST_THREADS)
            blocks = max(grid // queries, 1)
            arguments = *arguments, blocks
        compiled_kernel(kernel)[blocks * queries, threads, self._streams.selection](*arguments)
