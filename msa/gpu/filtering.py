"""The gapless filter of a batch of queries on one GPU, queued without waiting for the host."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import device as gpu
from cuda.alignment.device import SIMULATED, new_stream
from cuda.alignment.gapless import TableUploader, profile_limits
from cuda.alignment.top_k import GaplessQuery, TopKSelector, read_rows, row_size
from msa.gpu.database_stream import Chunk
from msa.gpu.interface import BestTargets, FilterLimits
from msa.gpu.memory import Allocate, is_out_of_memory
from msa.search.engine import QueryProfile

NUM_STREAMS = 4
"""Number of streams. A query's bounds fill the GPU; small dependent kernels follow, twelve in the first chunk
and four in later ones. Those of different queries run in parallel."""

_MAX_ROW_SETS, _ROW_BYTES = 8, 4 * 2**20
"""Maximum number of batches whose rows are allocated at once, and maximum bytes for more than one."""


@dataclass(frozen=True)
class UploadedQueries:
    """The queries of a batch with their tables.

    Args:
        queries: the queries.
        ready: event after which the tables are on the GPU; None if they are uploaded on first use.
    """

    queries: Sequence[GaplessQuery]
    ready: Any


def upload_queries(
    queries: Sequence[QueryProfile], kernels: Path, uploader: TableUploader
) -> UploadedQueries:
    """Build the tables of queries and upload them; if GPU memory is short, they are uploaded on first use."""
    limits = profile_limits([query.profile for query in queries])
    gapless_queries = [
        GaplessQuery(query.profile, kernels, of_query)
        for query, of_query in zip(queries, limits, strict=True)
    ]
    tables = [table for query in gapless_queries for table in query.tables]
    ready = None
    try:
        ready = uploader.upload(tables) if tables else None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return UploadedQueries(gapless_queries, ready)


@dataclass(frozen=True)
class _Rows:
    """Memory for the targets selected for each query of a batch.

    Args:
        on_device: device int32 [queries, row_size(max_targets)].
        views: its rows.
        on_host: pinned host memory of the same shape.
        started: event recorded before the filter.
        done: event recorded after the copy to the host.
    """

    on_device: Any
    views: list[Any]
    on_host: np.ndarray
    started: Any
    done: Any


@dataclass(frozen=True)
class _FilterStream:
    """One of the filter's streams, with its buffers; used by one thread."""

    stream: Any
    event: Any
    selector: TopKSelector


@dataclass
class PendingFilter:
    """The filter of a batch on one GPU, in progress.

    Args:
        owner: the GPU's filter.
        count: number of queries.
        uploaded: the queries; kept until the GPU has read them.
        rows: the targets selected from all chunks so far; None before the first chunk.
        next_rows: receives the targets selected after one more chunk. If memory runs out in the middle of
            that chunk, `rows` is still valid.
        started: event recorded before the filter.
    """

    owner: "BatchFilter"
    count: int
    uploaded: "Future[UploadedQueries] | None"
    rows: _Rows | None = None
    next_rows: _Rows | None = None
    started: Any = None

    def wait(self) -> BestTargets:
        """Wait for the result."""
        if self.rows is None:
            found = BestTargets(np.zeros(self.count, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))
        else:
            self.rows.done.synchronize()
            found = BestTargets(*read_rows(self.rows.on_host[: self.count]))
        self.owner.recycle(self)
        return found


class BatchFilter:
    """The queue of filters on one GPU; used by one thread.

    Args:
        allocate: allocates GPU memory.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._streams: list[tuple[Any, Any]] = []
        self._filter_streams: tuple[FilterLimits, int, list[_FilterStream]] | None = None
        self._spare_rows: list[tuple[tuple[int, int], _Rows]] = []
        self._copy_stream: Any = None
        self.seconds = 0.0

    def start(self, count: int, uploaded: "Future[UploadedQueries]") -> PendingFilter:
        """Start the filter of a batch of `count` queries, whose tables may not have been uploaded yet."""
        return PendingFilter(self, count, uploaded)

    def queue(
        self, chunk: Chunk, limits: FilterLimits, pending: PendingFilter, cancelled: threading.Event
    ) -> None:
        """Queue the filter of a batch in one more chunk.

        Args:
            chunk: from DatabaseStream.chunks; records its `used`.
            limits: of the filter.
            pending: from `start`.
            cancelled: once set, nothing more is queued.
        """
        filter_streams = self._filter_streams_for(limits, chunk.max_targets)
        previous, rows = pending.rows, pending.next_rows
        if rows is None:
            rows = pending.next_rows = self._take_rows(pending.count, row_size(limits.max_targets))
        assert pending.uploaded is not None
        uploaded = pending.uploaded.result()
        if previous is None:
            pending.started = rows.started
            pending.started.record(filter_streams[0].stream)
        for filter_stream in filter_streams:
            chunk.ready.wait(filter_stream.stream)
            if uploaded.ready is not None:
                uploaded.ready.wait(filter_stream.stream)
        for k, query in enumerate(uploaded.queries):
            if cancelled.is_set():
                break
            # a query uses the same stream for each chunk, so its previous row is complete
            selector = filter_streams[k % NUM_STREAMS].selector
            previous_row = None if previous is None else previous.views[k]
            selector.select(query, chunk.sequences, rows.views[k], chunk.first, previous_row)
        for filter_stream in filter_streams:
            filter_stream.event.record(filter_stream.stream)
            filter_stream.event.wait(self._copy_stream)
        chunk.used.record(self._copy_stream)
        # if this is not the last chunk, the copy after a later one overwrites this copy
        rows.on_device.copy_to_host(rows.on_host, stream=self._copy_stream)
        rows.done.record(self._copy_stream)
        pending.rows, pending.next_rows = rows, previous

    def recycle(self, pending: PendingFilter) -> None:
        """Make a finished batch's memory available again."""
        if pending.rows is not None and not SIMULATED:
            self.seconds += pending.started.elapsed_time(pending.rows.done) / 1000
        for rows in pending.rows, pending.next_rows:
            if rows is not None:
                self._spare_rows.append((rows.on_host.shape, rows))
        pending.rows = pending.next_rows = None
        pending.uploaded = None

    def release(self) -> None:
        """Release all GPU memory."""
        self._filter_streams = None
        self._spare_rows.clear()

    def _filter_streams_for(self, limits: FilterLimits, targets: int) -> list[_FilterStream]:
        """Return the streams, with buffers for chunks of up to this many targets."""
        if not self._streams:
            self._streams = [(new_stream(), gpu.event()) for _ in range(NUM_STREAMS)]
            self._copy_stream = new_stream(urgent=True)
        current = self._filter_streams
        if current is None or current[0] != limits or current[1] < targets:
            if current is not None:
                for filter_stream in current[2]:
                    filter_stream.stream.synchronize()
            self._filter_streams = None
            k, min_score = limits.max_targets, limits.min_score
            filter_streams = [
                _FilterStream(stream, event, TopKSelector(k, min_score, targets, stream, self._allocate))
                for stream, event in self._streams
            ]
            self._filter_streams = current = limits, targets, filter_streams
        return current[2]

    def _take_rows(self, queries: int, width: int) -> _Rows:
        """Take spare rows of the right width, or allocate new ones."""
        for index, (shape, rows) in enumerate(self._spare_rows):
            if shape[0] >= queries and shape[1] == width:
                del self._spare_rows[index]
                return rows
        # allocate for several batches at once, because the driver may wait for the GPU when it allocates
        size = queries * width
        count = max(1, min(_MAX_ROW_SETS, _ROW_BYTES // (4 * size)))
        on_device = self._allocate(count * size, np.dtype(np.int32))[: count * size]
        on_host = gpu.pinned_array((count, queries, width), np.int32)
        for k in range(count):
            part = on_device[k * size : (k + 1) * size].reshape(queries, width)
            views = [part[q] for q in range(queries)]
            rows = _Rows(part, views, on_host[k], gpu.event(), gpu.event())
            self._spare_rows.append(((queries, width), rows))
        return self._spare_rows.pop()[1]
