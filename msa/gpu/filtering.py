"""The filter of a batch of queries on one GPU: queued on several streams, never waiting for the host."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.best.query import QueryFilter
from cuda.alignment.best.targets import BestTargets
from msa.engine import QueryProfile
from msa.gpu.limits import Limits
from msa.gpu.memory import SIMULATED, Allocate, new_stream
from msa.gpu.residency import Chunk

LANES = 4
"""Streams of the filter. After the bounds of a query's scores, which fill the GPU, come a dozen small steps
that wait for each other: those of so many queries go side by side."""


_MOST_ROWS, _ROW_BYTES = 16, 4 * 2**20
"""Batches' results for which memory is taken at a time, and its bytes if there are several."""


@dataclass(frozen=True)
class _Rows:
    """Where the targets found for a batch in one chunk are written, and how they come back.

    Args:
        there: device int32 [queries, 1 + 2 · most].
        each: its rows.
        here: the same in pinned host memory.
        begun, done: events before the filter and after the copy.
    """

    there: Any
    each: list[Any]
    here: np.ndarray
    begun: Any
    done: Any


@dataclass(frozen=True)
class _Lane:
    """A stream of the filter with what it needs; used by one thread."""

    stream: Any
    event: Any
    best: BestTargets


@dataclass
class Found:
    """What a batch's filter has found on one GPU, once that is done.

    Args:
        parts: (first target, where its targets are written) of each chunk.
        tables: kept until then, as the GPU reads their tables.
    """

    filter: "Filter"
    queries: int
    most: int
    parts: list[tuple[int, _Rows]] = field(default_factory=list)
    tables: list[QueryFilter] = field(default_factory=list)

    def wait(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Places in the database, int64, and scores, int32, of each query's targets in each chunk."""
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.queries)]
        for first, rows in self.parts:
            rows.done.synchronize()
            for kept, row in zip(found, rows.here, strict=False):
                places, scores = row[1 : 1 + row[0]], row[1 + self.most : 1 + self.most + row[0]]
                kept.append((places.astype(np.int64) + first, scores.copy()))
        self.filter.take_back(self)
        return found


class Filter:
    """Queues the filter on one GPU; used by one thread.

    Args:
        kernels: folder of compiled kernels.
        allocate: how GPU memory is taken.
    """

    def __init__(self, kernels: Path, allocate: Allocate) -> None:
        self._kernels, self._allocate = kernels, allocate
        self._streams: list[tuple[Any, Any]] = []
        self._lanes: tuple[Limits, int, list[_Lane]] | None = None
        self._spare: list[tuple[tuple[int, int], _Rows]] = []
        self._copying: Any = None
        self.seconds = 0.0

    def begin(self, batch: Sequence[QueryProfile], limits: Limits) -> Found:
        """What is to be found; the first query's tables, which take longest, are made."""
        return Found(self, len(batch), limits.most, [], [QueryFilter(batch[0].profile, self._kernels)])

    def queue(
        self,
        chunk: Chunk,
        batch: Sequence[QueryProfile],
        limits: Limits,
        found: Found,
        stopped: threading.Event,
    ) -> None:
        """Queue the filter of a batch in one chunk, of which it is the only user.

        Args:
            chunk: see Residency.chunks.
            batch, limits, found: as in `begin`.
            stopped: once set, nothing more is queued.
        """
        lanes = self._lanes_for(limits, len(chunk))
        rows = self._rows_for(len(batch), 1 + 2 * limits.most)
        rows.begun.record(lanes[0].stream)
        for lane in lanes:
            chunk.ready.wait(lane.stream)
        for k, query in enumerate(batch):
            if stopped.is_set():
                break
            if len(found.tables) == k:
                found.tables.append(QueryFilter(query.profile, self._kernels))
            lane = lanes[k % LANES]
            lane.best.find(found.tables[k], chunk.residues, chunk.offsets, chunk.lengths, rows.each[k])
        for lane in lanes:
            lane.event.record(lane.stream)
            lane.event.wait(self._copying)
        chunk.used.record(self._copying)
        rows.there.copy_to_host(rows.here, stream=self._copying)
        rows.done.record(self._copying)
        found.parts.append((chunk.first, rows))

    def _lanes_for(self, limits: Limits, targets: int) -> list[_Lane]:
        """The lanes, with room for so many targets."""
        if not self._streams:
            self._streams = [(new_stream(), cuda.event()) for _ in range(LANES)]
            self._copying = new_stream(urgent=True)
        held = self._lanes
        if held is None or held[0] != limits or held[1] < targets:
            if held is not None:
                for lane in held[2]:
                    lane.stream.synchronize()
            self._lanes = None
            lanes = [
                _Lane(
                    stream,
                    event,
                    BestTargets(limits.most, limits.smallest, targets, stream, self._allocate),
                )
                for stream, event in self._streams
            ]
            self._lanes = held = limits, targets, lanes
        return held[2]

    def _rows_for(self, queries: int, width: int) -> _Rows:
        for place, (shape, rows) in enumerate(self._spare):
            if shape[0] >= queries and shape[1] == width:
                del self._spare[place]
                return rows
        # a streamed batch has some for each chunk: all at once, as the driver may wait for the GPU
        size = queries * width
        count = max(1, min(_MOST_ROWS, _ROW_BYTES // (4 * size)))
        there = self._allocate(count * size, np.dtype(np.int32))[: count * size]
        here = cuda.pinned_array((count, queries, width), np.int32)
        for k in range(count):
            part = there[k * size : (k + 1) * size].reshape(queries, width)
            each = [part[q] for q in range(queries)]
            rows = _Rows(part, each, here[k], cuda.event(), cuda.event())
            self._spare.append(((queries, width), rows))
        return self._spare.pop()[1]

    def take_back(self, found: Found) -> None:
        """Use a batch's memory again."""
        for _, rows in found.parts:
            if not SIMULATED:
                self.seconds += rows.begun.elapsed_time(rows.done) / 1000
            self._spare.append((rows.here.shape, rows))
        found.parts.clear()
        found.tables.clear()

    def forget(self) -> None:
        """Drop all GPU memory."""
        self._lanes = None
        self._spare.clear()
