"""The best targets of query after query, found on one stream without ever waiting for the host."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import cuda
from numba.core import config

from cuda.alignment.compiled import compiled_kernel
from cuda.alignment.top_k.kernel import (
    BINS,
    FIRST,
    FIRST_SCORES,
    FOUND,
    LISTS,
    PLACES,
    SECOND,
    SECOND_SCORES,
    SIGNATURES,
    STATE,
    THREADS,
    choose,
    count_bounds,
    list_bounds,
    narrow,
)

_EXTRA = 4
"""One in so many is added to the targets of the first list: then the second is rarely needed, and long ones,
which the list waits for, are few."""

_FEW_THREADS = 64
"""Of the blocks of a later chunk's steps, which have little to do: so small, and one for each multiprocessor,
they find room beside another query's bounds and need not wait for their end."""

_SMALL_PLACES, _LARGE_PLACES = 22, 31
"""Bits of places in the database."""

# threads of the simulator are the host's; two blocks show that they share work
_SIMULATED_BLOCKS, _SIMULATED_THREADS = 2, 4


class Scorer(Protocol):
    """Gapless scores of one query; all work is queued on the stream."""

    def bounds(self, residues: Any, offsets: Any, lengths: Any, bounds: Any, stream: Any) -> None:
        """Bounds of all targets' scores, device int16 [n]: no less than the score, or 2¹⁵ − 1."""

    def rescore(
        self,
        residues: Any,
        offsets: Any,
        lengths: Any,
        listed: Any,
        scores: Any,
        stream: Any,
        few: bool = False,
    ) -> None:
        """Exact scores, device int32, of listed targets: device int32, how many, and their indices."""


def row_numbers(most: int) -> int:
    """int32 numbers of a row with so many targets."""
    return PLACES + 2 * most


def read_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in the database, int64, and scores, int32, of the targets of a row, copied, in no order."""
    found, most = int(row[FOUND]), (len(row) - PLACES) // 2
    places, scores = row[PLACES:][:found], row[PLACES + most :][:found]
    return places.astype(np.int64), scores.copy()


@dataclass(frozen=True)
class _Views:
    """The parts of the buffers that so many targets take."""

    count: int
    bounds: Any
    first: Any
    first_scores: Any
    second: Any
    second_scores: Any


class BestTargets:
    """Finds the best targets of queries in chunks of a database on the current GPU.

    Bounds of all targets come first. The targets with the highest ones are scored exactly; what the most-th
    best of these scores says could still be among the best is scored as well, and that is all that can be.
    Where other chunks have been searched, the most-th best score of theirs says so at once.

    Args:
        most: how many are found at most, ≥ 1.
        smallest: score that a target needs.
        room: targets of a chunk, at most.
        stream: what to launch on, or 0; the buffers belong to it.
        allocate: (count, dtype) → device array of at least so many; may raise.
    """

    bytes_per_target = 18
    """Device memory for each target of `room`."""

    def __init__(
        self,
        most: int,
        smallest: int,
        room: int,
        stream: Any = 0,
        allocate: Callable[[int, np.dtype[Any]], Any] = cuda.device_array,
    ) -> None:
        self._most, self._smallest = most, min(max(smallest, 0), 2**31)
        self._room, self._stream = room, stream

        def buffer(count: int, kind: type) -> Any:
            return allocate(count, np.dtype(kind))[:count]

        def zeros(count: int, kind: type) -> Any:
            array = buffer(count, kind)
            array.copy_to_device(np.zeros(count, kind), stream=stream)
            return array

        self._words = buffer(room // 4 + 1, np.int64)
        self._lists = buffer(LISTS * (room + 1), np.int32).reshape(LISTS, room + 1)
        self._histogram, self._state = zeros(BINS, np.int32), zeros(STATE, np.int32)
        self._nothing = zeros(row_numbers(0), np.int32)
        blocks, threads = _SIMULATED_BLOCKS, _SIMULATED_THREADS
        if not config.ENABLE_CUDASIM:
            blocks, threads = cuda.get_current_device().MULTIPROCESSOR_COUNT, THREADS

        def launched(kernel: Any, blocks: int, threads: int = threads) -> Any:
            return compiled_kernel(kernel, SIGNATURES[kernel], (THREADS, 1))[blocks, threads, stream]

        self._count_bounds, self._list_bounds = launched(count_bounds, blocks), launched(list_bounds, blocks)
        self._narrow, self._choose = launched(narrow, 1), launched(choose, 1)
        few = min(threads, _FEW_THREADS)
        self._list_few, self._choose_few = launched(list_bounds, blocks, few), launched(choose, 1, few)
        self._views = self._viewed(room)
        for empty in self._views.first, self._views.second:
            empty[:1].copy_to_device(np.zeros(1, np.int32), stream=stream)

    def _viewed(self, count: int) -> _Views:
        return _Views(
            count,
            self._words.view(np.int16)[:count],
            self._lists[FIRST, : count + 1],
            self._lists[FIRST_SCORES, : count + 1],
            self._lists[SECOND, : count + 1],
            self._lists[SECOND_SCORES, : count + 1],
        )

    def find(
        self,
        query: Scorer,
        residues: Any,
        offsets: Any,
        lengths: Any,
        found: Any,
        first: int = 0,
        before: Any = None,
    ) -> None:
        """Find the best targets; returns at once, the work is queued on the stream.

        Args:
            query: whose scores; a QueryFilter.
            residues: device uint8 [bytes], see GaplessFilter.scores.
            offsets: device int64 [n ≤ room].
            lengths: device int32 [n].
            found: device int32 [row_numbers(most)], written: a row, see `read_row`. Of equal scores at the
                limit the first targets' are found.
            first: place of the first target in the database; places are less than 2³¹.
            before: another such row, what was found in other chunks; the best of both are found. Quickest
                from the chunk with the highest scores to that with the lowest.

        Raises:
            ValueError: there is no room for so many targets, or a row has another size.
        """
        count = lengths.size
        if count > self._room:
            raise ValueError(f"room for {self._room} targets, not for {count}")
        for row in (found,) if before is None else (found, before):
            if row.size != row_numbers(self._most):
                raise ValueError(
                    f"a row of {self._most} targets has {row_numbers(self._most)} numbers, not {row.size}"
                )
        if count != self._views.count:
            # most chunks are alike, and a view takes longer than a launch
            self._views = self._viewed(count)
        views, stream, targets = self._views, self._stream, (residues, offsets, lengths)
        if count:
            query.bounds(*targets, views.bounds, stream)
        if before is not None:
            if count:
                self._list_few(self._words, count, before, views.first)
                query.rescore(*targets, views.first, views.first_scores, stream, few=True)
            limits = self._smallest, self._most, _LARGE_PLACES
            self._choose_few(self._lists, first, before, *limits, found)
            return
        bits = _SMALL_PLACES if first + count <= 2**_SMALL_PLACES else _LARGE_PLACES
        known = self._lists, first, self._nothing, self._smallest, self._most, bits
        if count:
            self._count_bounds(
                self._words, count, min(self._smallest, BINS - 1), self._most + self._most // _EXTRA,
                self._histogram, self._state,
            )  # fmt: skip
            self._list_bounds(self._words, count, self._state, views.first)
            query.rescore(*targets, views.first, views.first_scores, stream)
            self._narrow(*known, self._state)
            self._list_bounds(self._words, count, self._state, views.second)
            query.rescore(*targets, views.second, views.second_scores, stream)
        self._choose(*known, found)
