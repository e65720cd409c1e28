"""The gapless filter of a batch of queries on one GPU, queued without waiting for the host."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import device as gpu
from cuda.alignment.gapless import TableUploader, profile_limits
from cuda.alignment.top_k import (
    GaplessBatch,
    SelectionStreams,
    TopKSelector,
    any_length,
    read_rows,
    row_size,
)
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device.database_stream import Chunk, resident_bytes
from msa.gpu.device.memory import Allocate, is_out_of_memory
from msa.gpu.worker.interface import BestTargets
from msa.profile.pssm import QueryProfile

SELECTED_QUERIES = 8
"""Maximum number of queries whose targets are selected together. The bounds of a query fill the GPU; the ten
small kernels that follow take as long for several queries as for one."""

FILTER_BYTES_PER_TARGET = SELECTED_QUERIES * TopKSelector.bytes_per_target
"""GPU memory that the filter needs for each target of a chunk."""


_MAX_ROW_SETS, _ROW_BYTES = 8, 4 * 2**20
"""Maximum number of batches whose rows are allocated at once, and maximum bytes for more than one."""


def resident_database_bytes(targets: SequenceArrays) -> int:
    """Return the GPU memory of a database that stays on a GPU, including the filter's."""
    return resident_bytes(targets, (0, len(targets)), FILTER_BYTES_PER_TARGET)


@dataclass(frozen=True)
class UploadedQueries:
    """The queries of a batch with their tables.

    Args:
        batches: the queries in groups of up to SELECTED_QUERIES, sorted by length, so that most queries of a
            group have the same kernels.
        rows: int64 [queries], the position of each query in that order.
        ready: event after which the tables are on the GPU; None if they are uploaded on first use.
    """

    batches: Sequence[GaplessBatch]
    rows: np.ndarray
    ready: Any


def upload_queries(
    queries: Sequence[QueryProfile], kernels: Path, uploader: TableUploader
) -> UploadedQueries:
    """Build the tables of queries and upload them; if GPU memory is short, they are uploaded on first use."""
    profiles = [query.profile for query in queries]
    limits = profile_limits(profiles)
    order = sorted(range(len(queries)), key=lambda query: len(profiles[query]))
    batches = []
    for first in range(0, len(order), SELECTED_QUERIES):
        members = order[first : first + SELECTED_QUERIES]
        longest = _max_target_lengths([queries[k] for k in members])
        batches.append(
            GaplessBatch([profiles[k] for k in members], kernels, [limits[k] for k in members], longest)
        )
    tables = [table for batch in batches for table in batch.tables]
    ready = None
    try:
        ready = uploader.upload(tables, [batch.longest_table for batch in batches]) if tables else None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return UploadedQueries(batches, np.argsort(order), ready)


def _max_target_lengths(queries: Sequence[QueryProfile]) -> np.ndarray:
    """Return the lengths of the longest targets that pass, by score, int32 [queries, n]."""
    unlimited = any_length(1)[0]
    tables = [
        unlimited if query.max_target_lengths is None else query.max_target_lengths for query in queries
    ]
    scores = np.arange(max(map(len, tables)))
    return np.stack([table.take(np.minimum(scores, len(table) - 1)) for table in tables])


@dataclass(frozen=True)
class _Rows:
    """Memory for the targets selected for each query of a batch.

    Args:
        on_device: device int32 [queries, row_size(max_targets)].
        on_host: pinned host memory of the same shape.
        started: event recorded before the filter.
        done: event recorded after the copy to the host.
    """

    on_device: Any
    on_host: np.ndarray
    started: Any
    done: Any


@dataclass
class PendingFilter:
    """The filter of a batch on one GPU, in progress.

    Args:
        owner: the GPU's filter.
        count: number of queries.
        uploaded: the queries; kept until the GPU has read them.
        max_targets: maximum number of targets of a query that pass.
        min_score: minimum gapless score, half-bits.
        rows: the targets selected from all chunks so far; None before the first chunk.
        next_rows: receives the targets selected after one more chunk. If memory runs out in the middle of
            that chunk, `rows` is still valid.
        started: event recorded before the filter.
    """

    owner: "BatchFilter"
    count: int
    uploaded: "Future[UploadedQueries] | None"
    max_targets: int
    min_score: int
    rows: _Rows | None = None
    next_rows: _Rows | None = None
    started: Any = None

    def wait(self) -> BestTargets:
        """Wait for the result."""
        if self.rows is None:
            found = BestTargets(np.zeros(self.count, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))
        else:
            self.rows.done.synchronize()
            assert self.uploaded is not None
            found = BestTargets(*read_rows(self.rows.on_host[self.uploaded.result().rows]))
        self.owner.recycle(self)
        return found


class BatchFilter:
    """The queue of filters on one GPU; used by one thread."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._streams: SelectionStreams | None = None
        # the limits, and the targets of a chunk, that it is for
        self._selector: tuple[tuple[int, int], int, TopKSelector] | None = None
        self._spare_rows: list[tuple[tuple[int, int], _Rows]] = []
        self.seconds = 0.0

    def queue(self, chunk: Chunk, pending: PendingFilter, cancelled: threading.Event) -> None:
        """Queue the filter of a batch in one more chunk.

        Args:
            chunk: from DatabaseStream.chunks; records its `used`.
            pending: the batch.
            cancelled: once set, nothing more is queued.
        """
        if self._streams is None:
            self._streams = SelectionStreams()
        streams = self._streams
        selector = self._selector_for(pending, chunk.max_targets, streams)
        previous, rows = pending.rows, pending.next_rows
        if rows is None:
            rows = pending.next_rows = self._take_rows(pending.count, row_size(pending.max_targets))
        assert pending.uploaded is not None
        uploaded = pending.uploaded.result()
        streams.wait_for(chunk.ready)
        if uploaded.ready is not None:
            streams.wait_for(uploaded.ready)
        if previous is None:
            pending.started = rows.started
            pending.started.record(streams.bounds[0])
        first_row = 0
        previous_rows = None if previous is None else previous.on_device
        for batch in uploaded.batches:
            if cancelled.is_set():
                break
            selector.select(batch, chunk.sequences, rows.on_device, first_row, chunk.first, previous_rows)
            first_row += len(batch)
        chunk.used.record(streams.selection)
        # if this is not the last chunk, the copy after a later one overwrites this copy
        rows.on_device.copy_to_host(rows.on_host, stream=streams.selection)
        rows.done.record(streams.selection)
        pending.rows, pending.next_rows = rows, previous

    def recycle(self, pending: PendingFilter) -> None:
        """Make a finished batch's memory available again."""
        if pending.rows is not None:
            self.seconds += pending.started.elapsed_time(pending.rows.done) / 1000
        for rows in pending.rows, pending.next_rows:
            if rows is not None:
                self._spare_rows.append((rows.on_host.shape, rows))
        pending.rows = pending.next_rows = None
        pending.uploaded = None

    def release(self) -> None:
        """Release all GPU memory, once the GPU has finished its work."""
        gpu.synchronize()
        self._selector = None
        self._spare_rows.clear()

    def _selector_for(self, pending: PendingFilter, targets: int, streams: SelectionStreams) -> TopKSelector:
        """Return the selector, with buffers for chunks of up to this many targets."""
        current, limits = self._selector, (pending.max_targets, pending.min_score)
        if current is None or current[0] != limits or current[1] < targets:
            if current is not None:
                # work on the GPU may still use its buffers
                streams.selection.synchronize()
            self._selector = None
            selector = TopKSelector(*limits, targets, SELECTED_QUERIES, streams, self._allocate)
            self._selector = current = limits, targets, selector
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
            rows = _Rows(part, on_host[k], gpu.event(), gpu.event())
            self._spare_rows.append(((queries, width), rows))
        return self._spare_rows.pop()[1]
