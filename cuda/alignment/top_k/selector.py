"""Selection of the k best targets of each query, on one stream and without waiting for the host."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu
from cuda.alignment.device import SIMULATED, Device
from cuda.alignment.gapless import GaplessBounder, GaplessScorer, ProfileLimits, UploadedTable
from cuda.alignment.kernel_cache import KernelSource, compiled_kernel
from cuda.alignment.top_k.layout import (
    BINS,
    CHOOSE,
    COUNT_BOUNDS,
    FIRST,
    FIRST_SCORES,
    LIST_BOUNDS,
    LIST_ROWS,
    NARROW,
    ROW_COUNT,
    ROW_TARGETS,
    SECOND,
    SECOND_SCORES,
    STATE_SIZE,
    THREADS,
)

_EXTRA_DIVISOR = 4
"""The first list has at least k + k / _EXTRA_DIVISOR targets, so that the second list is rarely needed and
has few long targets, which take longest."""

_SMALL_THREADS = 64
"""Threads per block of the kernels for later chunks, which have little to do. One block of this size per
multiprocessor runs concurrently with the bounds of another query instead of waiting for them to finish."""

_SMALL_TARGET_BITS, _LARGE_TARGET_BITS = 22, 31
"""Bits of a database index in a key."""

# the simulator runs each thread as a host thread; two blocks, so that they share work
_SIMULATED_BLOCKS, _SIMULATED_THREADS = 2, 4


class BoundAndScore(Protocol):
    """Upper bounds and exact scores of one query; all work is queued on the stream."""

    def bound_all(self, targets: DeviceSequences, bounds: Any, stream: Any) -> None:
        """Bound the scores of all targets, device int16 [n]: no less than the score, or 2¹⁵ − 1."""

    def score_listed(
        self, targets: DeviceSequences, listed: Any, scores: Any, stream: Any, small_grid: bool = False
    ) -> None:
        """Compute the exact scores, device int32, of listed targets: device int32, count, then indices."""


class GaplessQuery:
    """Gapless bounds and exact scores of one query.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        kernels: folder for generated and compiled kernels.
        limits: from `profile_limits`; computed if None.

    Raises:
        ValueError: the profile has another shape.
        OSError: the folder is not writable.
    """

    def __init__(self, profile: np.ndarray, kernels: Path, limits: ProfileLimits | None = None) -> None:
        self._bounder = GaplessBounder(profile, kernels, limits=limits)
        self._scorer = GaplessScorer(profile, kernels, limits=limits)
        self.bound_all = self._bounder.bound_all
        self.score_listed = self._scorer.score_listed

    @property
    def tables(self) -> list[UploadedTable]:
        """The query's tables, which may be uploaded ahead of time."""
        return [*self._bounder.tables, *self._scorer.tables]


def row_size(k: int) -> int:
    """Return the size of a row for up to k targets, in int32 numbers."""
    return ROW_TARGETS + 2 * k


def read_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of a row's database indices, int64, and scores, int32, in no particular order."""
    count, k = int(row[ROW_COUNT]), (len(row) - ROW_TARGETS) // 2
    targets, scores = row[ROW_TARGETS:][:count], row[ROW_TARGETS + k :][:count]
    return targets.astype(np.int64), scores.copy()


def read_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the content of several rows, int32 [n, row_size(k)], in a few operations for all of them.

    Returns:
        The number of targets in each row, int64 [n]; then all database indices, int64, and scores, int32, row
        by row, each by descending score, then by index.
    """
    k = (rows.shape[1] - ROW_TARGETS) // 2
    counts = rows[:, ROW_COUNT].astype(np.int64)
    longest = int(counts.max(initial=0))
    used = np.arange(longest) < counts[:, None]
    # one key for both criteria; scores are not negative, and indices are below 2³¹
    keys = rows[:, ROW_TARGETS + k :][:, :longest].astype(np.int64)
    keys <<= _LARGE_TARGET_BITS
    np.subtract(rows[:, ROW_TARGETS:][:, :longest], keys, out=keys)
    keys[~used] = np.iinfo(np.int64).max
    keys.sort(axis=1)
    keys = keys[used]
    scores = -(keys >> _LARGE_TARGET_BITS)
    return counts, keys & ((1 << _LARGE_TARGET_BITS) - 1), scores.astype(np.int32)


@dataclass(frozen=True)
class _Views:
    """Views of the buffers with the size of one chunk."""

    count: int
    bounds: Any
    first: Any
    first_scores: Any
    second: Any
    second_scores: Any


class TopKSelector:
    """Selects the k best targets of queries in chunks of a database, on the current GPU.

    In the first chunk, all targets are bounded and those with the highest bounds are scored exactly. The k-th
    best of these scores decides which other targets may still be among the best; these are scored as well,
    which makes the result exact. In later chunks, the k-th best score of the earlier ones decides it, so one
    list is enough.

    Args:
        k: maximum number of selected targets, ≥ 1.
        min_score: minimum score of a selected target, half-bits.
        capacity: maximum number of targets per chunk.
        stream: stream to launch on, or 0; the buffers belong to it.
        allocate: (count, dtype) → device array of at least `count` elements; may raise.
    """

    bytes_per_target = 18
    """Device memory for each target of `capacity`."""

    def __init__(
        self,
        k: int,
        min_score: int,
        capacity: int,
        stream: Any = 0,
        allocate: Callable[[int, np.dtype[Any]], Any] = gpu.device_array,
    ) -> None:
        self._k, self._min_score = k, min(max(min_score, 0), 2**31)
        self._capacity, self._stream = capacity, stream

        def buffer(count: int, dtype: type) -> Any:
            return allocate(count, np.dtype(dtype))[:count]

        def zeros(count: int, dtype: type) -> Any:
            array = buffer(count, dtype)
            array.copy_to_device(np.zeros(count, dtype), stream=stream)
            return array

        self._bound_words = buffer(capacity // 4 + 1, np.int64)
        self._lists = buffer(LIST_ROWS * (capacity + 1), np.int32).reshape(LIST_ROWS, capacity + 1)
        self._histogram, self._state = zeros(BINS, np.int32), zeros(STATE_SIZE, np.int32)
        self._empty_row = zeros(row_size(0), np.int32)
        blocks, threads = _SIMULATED_BLOCKS, _SIMULATED_THREADS
        if not SIMULATED:
            blocks, threads = Device.current().multiprocessors, THREADS

        def launcher(kernel: KernelSource, blocks: int, threads: int = threads) -> Any:
            return compiled_kernel(kernel)[blocks, threads, stream]

        self._count_bounds, self._list_bounds = launcher(COUNT_BOUNDS, blocks), launcher(LIST_BOUNDS, blocks)
        self._narrow, self._choose = launcher(NARROW, 1), launcher(CHOOSE, 1)
        small = min(threads, _SMALL_THREADS)
        self._list_small, self._choose_small = (
            launcher(LIST_BOUNDS, blocks, small),
            launcher(CHOOSE, 1, small),
        )
        self._views = self._make_views(capacity)
        for empty in self._views.first, self._views.second:
            empty[:1].copy_to_device(np.zeros(1, np.int32), stream=stream)

    def _make_views(self, count: int) -> _Views:
        return _Views(
            count,
            self._bound_words.view(np.int16)[:count],
            self._lists[FIRST, : count + 1],
            self._lists[FIRST_SCORES, : count + 1],
            self._lists[SECOND, : count + 1],
            self._lists[SECOND_SCORES, : count + 1],
        )

    def select(
        self,
        query: BoundAndScore,
        targets: DeviceSequences,
        row: Any,
        first: int = 0,
        previous_row: Any = None,
    ) -> None:
        """Queue the selection in one chunk on the stream and return at once.

        Args:
            query: a GaplessQuery.
            targets: the chunk, at most `capacity` targets; see GaplessScorer.score_all.
            row: device int32 [row_size(k)], written; see `read_row`. Among equal scores at the limit, the
                targets that come first in the database are selected.
            first: database index of the chunk's first target; indices are below 2³¹.
            previous_row: the row of other chunks; the result covers these and this chunk. Fastest if the
                chunks with the highest scores come first.

        Raises:
            ValueError: there are more targets than `capacity`, or a row has another size.
        """
        count = targets.lengths.size
        if count > self._capacity:
            raise ValueError(f"the selector has capacity for {self._capacity} targets, not for {count}")
        for checked in (row,) if previous_row is None else (row, previous_row):
            if checked.size != row_size(self._k):
                raise ValueError(
                    f"a row of {self._k} targets has {row_size(self._k)} numbers, not {checked.size}"
                )
        if count != self._views.count:
            # most chunks have the same size, and making views takes longer than a launch
            self._views = self._make_views(count)
        views, stream = self._views, self._stream
        if count:
            query.bound_all(targets, views.bounds, stream)
        if previous_row is not None:
            if count:
                self._list_small(self._bound_words, count, previous_row, views.first)
                query.score_listed(targets, views.first, views.first_scores, stream, small_grid=True)
            limits = self._min_score, self._k, _LARGE_TARGET_BITS
            self._choose_small(self._lists, first, previous_row, *limits, row)
            return
        bits = _SMALL_TARGET_BITS if first + count <= 2**_SMALL_TARGET_BITS else _LARGE_TARGET_BITS
        entries = self._lists, first, self._empty_row, self._min_score, self._k, bits
        if count:
            self._count_bounds(
                self._bound_words, count, min(self._min_score, BINS - 1), self._k + self._k // _EXTRA_DIVISOR,
                self._histogram, self._state,
            )  # fmt: skip
            self._list_bounds(self._bound_words, count, self._state, views.first)
            query.score_listed(targets, views.first, views.first_scores, stream)
            self._narrow(*entries, self._state)
            self._list_bounds(self._bound_words, count, self._state, views.second)
            query.score_listed(targets, views.second, views.second_scores, stream)
        self._choose(*entries, row)
