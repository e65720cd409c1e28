"""The filter of a batch of queries on one GPU: queued on several streams, never waiting for the host."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.top_k.query import QueryFilter
from cuda.alignment.top_k.targets import BestTargets, read_row, row_numbers
from msa.gpu.database_stream import Chunk
from msa.gpu.limits import Limits
from msa.gpu.memory import SIMULATED, Allocate, is_out_of_memory, new_stream
from msa.search.engine import QueryProfile

LANES = 4
"""Streams of the filter. After the bounds of a query's scores, which fill the GPU, come small steps that wait
for each other, in the first chunk a dozen, later four: those of so many queries go side by side."""


_MOST_ROWS, _ROW_BYTES = 8, 4 * 2**20
"""Batches' rows for which memory is taken at a time, and its bytes if there are several."""


def tables_of(query: QueryProfile, kernels: Path) -> QueryFilter:
    """A query's tables, on the GPU if there is memory for them; else it is asked for when they are used."""
    tables = QueryFilter(query.profile, kernels)
    try:
        tables.prepare()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return tables


@dataclass(frozen=True)
class _Rows:
    """Where the targets found for a batch are written, and how they come back.

    Args:
        there: device int32 [queries, row_numbers(most)].
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
        rows: what was found in the chunks so far; None before the first.
        next_rows: what is found in them and in one more is written there. Should there be no memory for all
            of that chunk's work, `rows` still is what it was.
        begun: event before the filter.
        tables: of each query; kept until then, as the GPU reads them.
    """

    filter: "Filter"
    tables: list[Future[QueryFilter]]
    rows: _Rows | None = None
    next_rows: _Rows | None = None
    begun: Any = None

    def wait(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Places in the database, int64, and scores, int32, of each query's targets, in one part or none."""
        queries = len(self.tables)
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(queries)]
        if self.rows is not None:
            self.rows.done.synchronize()
            found = [[read_row(row)] for row in self.rows.here[:queries]]
        self.filter.take_back(self)
        return found


class Filter:
    """Queues the filter on one GPU; used by one thread.

    Args:
        allocate: how GPU memory is taken.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._streams: list[tuple[Any, Any]] = []
        self._lanes: tuple[Limits, int, list[_Lane]] | None = None
        self._spare: list[tuple[tuple[int, int], _Rows]] = []
        self._copying: Any = None
        self.seconds = 0.0

    def begin(self, tables: "Sequence[Future[QueryFilter]]") -> Found:
        """What is to be found, by queries' tables from `tables_of`, which may still be being made."""
        return Found(self, list(tables))

    def queue(
        self,
        chunk: Chunk,
        limits: Limits,
        found: Found,
        stopped: threading.Event,
    ) -> None:
        """Queue the filter of a batch in one more chunk, of which it is the only user.

        Args:
            chunk: see Residency.chunks.
            limits: what passes.
            found: from `begin`.
            stopped: once set, nothing more is queued.
        """
        lanes = self._lanes_for(limits, chunk.most)
        before, rows = found.rows, found.next_rows
        if rows is None:
            rows = found.next_rows = self._rows_for(len(found.tables), row_numbers(limits.most))
        if before is None:
            found.begun = rows.begun
            found.begun.record(lanes[0].stream)
        for lane in lanes:
            chunk.ready.wait(lane.stream)
        targets = chunk.residues, chunk.offsets, chunk.lengths
        for k, tables in enumerate(found.tables):
            if stopped.is_set():
                break
            # a query has the same lane in each chunk: its row is there when the next one is filtered
            best = lanes[k % LANES].best
            known = None if before is None else before.each[k]
            best.find(tables.result(), *targets, rows.each[k], chunk.first, known)
        for lane in lanes:
            lane.event.record(lane.stream)
            lane.event.wait(self._copying)
        chunk.used.record(self._copying)
        # which chunk is the last is not known here; what an earlier one copies is overwritten
        rows.there.copy_to_host(rows.here, stream=self._copying)
        rows.done.record(self._copying)
        found.rows, found.next_rows = rows, before

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
        # for some batches at once, as the driver may wait for the GPU
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
        if found.rows is not None and not SIMULATED:
            self.seconds += found.begun.elapsed_time(found.rows.done) / 1000
        for rows in found.rows, found.next_rows:
            if rows is not None:
                self._spare.append((rows.here.shape, rows))
        found.rows = found.next_rows = None
        found.tables.clear()

    def forget(self) -> None:
        """Drop all GPU memory."""
        self._lanes = None
        self._spare.clear()
