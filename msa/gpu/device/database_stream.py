"""Transfer of a database to the GPU in chunks, which stay there or pass through.

Residues are copied from the memory map into pinned buffers of fixed size, and from there to the GPU, while
the GPU works on earlier chunks. Copies have their own threads and stream. A database that fits in GPU memory
stays there for later queries. A larger one passes through two buffers on the GPU once per batch of queries:
the next chunk, or the first chunk of the next pass, is copied while the current one is used. The host never
copies the whole database.

A pass goes from the last chunk to the first. A database is sorted by length, and long targets score higher,
so the first chunks of a pass rule out most other targets.

Chunk sizes depend on the free memory that the driver reports. If an allocation fails nevertheless, because
another process took the memory in between, the chunk size is halved and the pass continues.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment import device as gpu_device
from cuda.alignment.device import new_stream
from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.device.devices import GpuUnavailable
from msa.gpu.device.memory import PINNED_BYTES, Allocate, PinnedBuffer, allocate_on_gpu, free_bytes
from msa.gpu.device.target_upload import ALIGNMENT

_COPY_THREADS = 4
"""Threads that fill pinned buffers; a single one copies 7 GB/s."""
_MAX_PINNED_BYTES = 2**28
"""Total size of the pinned buffers."""

DEFAULT_CHUNK_BYTES = 2**30
"""Maximum residues per chunk: enough to hide all overheads. Offsets and scores need additional memory."""

_OFFSET_AND_LENGTH_BYTES = 8 + 4


@dataclass(frozen=True)
class Chunk:
    """Consecutive targets on the GPU.

    Args:
        first: database index of the first target.
        end: database index after the last target.
        max_targets: number of targets in the largest chunk of a pass.
        sequences: the targets; offsets are relative to the chunk.
        ready: event that is recorded when the copy is complete.
        used: event that the user records after queuing the work on the chunk.
    """

    first: int
    end: int
    max_targets: int
    sequences: DeviceSequences
    ready: Any
    used: Any

    def __len__(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class _ChunkBuffer:
    """Device memory for one chunk, with its events."""

    sequences: DeviceSequences
    ready: Any
    used: Any


def resident_bytes(targets: SequenceArrays, part: tuple[int, int], bytes_per_target: int) -> int:
    """Return the GPU memory of resident targets, including `bytes_per_target` for the filter."""
    start, stop = targets.byte_range(*part)
    return stop - start + (_OFFSET_AND_LENGTH_BYTES + bytes_per_target) * (part[1] - part[0])


class DatabaseStream:
    """Consecutive targets of a database, as chunks on one GPU. Everything except copying uses one thread.

    Args:
        targets: the database, memory-mapped.
        part: first target and end of this GPU's part.
        gpu: number of the GPU.
        budget: bytes of GPU memory that the targets may use, including `bytes_per_target`.
        bytes_per_target: GPU memory that the filter needs for each target of the largest chunk.
        allocate: allocates GPU memory.
        max_chunk_bytes: maximum residues per chunk.
    """

    def __init__(
        self,
        targets: SequenceArrays,
        part: tuple[int, int],
        gpu: int,
        budget: int,
        bytes_per_target: int,
        allocate: Allocate = allocate_on_gpu,
        max_chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> None:
        self._targets, self._allocate = targets, allocate
        self._first, self._end = part
        self._resident = resident_bytes(targets, part, bytes_per_target) <= budget
        # a streamed database needs two chunks at a time, and the filter's memory for one of them
        self._chunk_bytes = max_chunk_bytes if self._resident else min(max_chunk_bytes, max(budget // 2, 1))
        self._bytes_per_target = 0 if self._resident else _OFFSET_AND_LENGTH_BYTES + -(-bytes_per_target // 2)
        self._resident_chunks: list[Chunk] = []
        self._buffers: list[_ChunkBuffer | None] = [None, None]
        self._next: tuple[int, Future[Chunk]] | None = None
        self._copy_stream = new_stream()
        self._pinned: SimpleQueue[PinnedBuffer] = SimpleQueue()
        for _ in range(self._pinned_buffers()):
            self._pinned.put(PinnedBuffer())
        self._chunk_thread = ThreadPoolExecutor(1, "copying", gpu_device.select_device, (gpu,))
        self._copy_threads = ThreadPoolExecutor(_COPY_THREADS, "sending", gpu_device.select_device, (gpu,))

    @property
    def resident(self) -> bool:
        """True if all targets stay on the GPU between passes."""
        return self._resident

    @property
    def single_chunk(self) -> "Chunk | None":
        """The resident chunk that contains all targets, if there is one."""
        chunks = self._resident_chunks[:1]
        return chunks[0] if chunks and (chunks[0].first, chunks[0].end) == (self._first, self._end) else None

    def start(self) -> None:
        """Start to copy the first chunk of a pass, unless it is resident."""
        if not self._resident_chunks and self._first < self._end:
            self._prefetch(self._end)

    def chunks(self, end: int, more_follow: bool = False) -> Iterator[Chunk]:
        """Yield the chunks of the targets before `end`, from the last to the first.

        The user waits for a chunk's `ready` on its own stream, and records `used` there before requesting the
        next chunk. A chunk is valid until the chunk after the next is requested.

        Args:
            end: database index.
            more_follow: whether another pass follows.

        Raises:
            OutOfGpuMemory: no memory for the next chunk; call `shrink` and then `chunks` again.
        """
        for chunk in list(self._resident_chunks):
            if chunk.end <= end:
                yield chunk
                end = chunk.first
        while end > self._first:
            self._prefetch(end)
            assert self._next is not None
            copied, self._next = self._next[1], None
            chunk = copied.result()
            if self._resident:
                self._resident_chunks.append(chunk)
            end = chunk.first
            # the buffer of the previous chunk can be reused: all work on it has been queued
            if end > self._first:
                self._prefetch(end)
            elif more_follow and not self._resident:
                self._prefetch(self._end)
            yield chunk

    def shrink(self, requested_bytes: int = 0) -> None:
        """Release all memory and halve the chunk size, because there is less memory than expected.

        Args:
            requested_bytes: size of the failed allocation, for the error message.

        Raises:
            GpuUnavailable: chunks cannot be smaller.
        """
        if self._chunk_bytes <= ALIGNMENT:
            raise GpuUnavailable(
                f"the GPU has no memory left for a single target: {requested_bytes} bytes are needed, "
                f"{free_bytes()} are free"
            )
        start, stop = self._targets.byte_range(self._first, self._end)
        self.release()
        self._resident = False
        self._chunk_bytes = max(min(self._chunk_bytes, stop - start) // 2, ALIGNMENT)

    def release(self) -> None:
        """Release all GPU memory; the next pass copies the targets again."""
        self._discard_next()
        gpu_device.synchronize()
        self._resident_chunks.clear()
        self._buffers = [None, None]
        gpu_device.release_unused()

    def close(self) -> None:
        """Release all GPU memory and end the threads."""
        self.release()
        self._chunk_thread.shutdown()
        self._copy_threads.shutdown()

    def _pinned_buffers(self) -> int:
        """Return the number of pinned buffers: for a streamed database, enough for a whole chunk.

        The chunk's GPU memory becomes free only when the chunk that used it, two chunks earlier, is finished.
        With the whole chunk in pinned memory, work on it can be queued before that.
        """
        for_chunk = 0 if self._resident else -(-self._chunk_bytes // PINNED_BYTES)
        return min(2 * _COPY_THREADS + for_chunk, _MAX_PINNED_BYTES // PINNED_BYTES)

    def _prefetch(self, end: int) -> None:
        """Start to copy the chunk that ends before target `end`, unless this is in progress."""
        if self._next is not None:
            if self._next[0] == end:
                return
            self._discard_next()
        self._next = end, self._chunk_thread.submit(self._copy_chunk, end)

    def _discard_next(self) -> None:
        if self._next is not None:
            self._next[1].exception()
            self._next = None

    def _cost(self, first: int, end: int) -> int:
        """Return the bytes that targets take up in a chunk, including the filter's."""
        start, stop = self._targets.byte_range(first, end)
        return stop - start + self._bytes_per_target * (end - first)

    def _first_of_chunk(self, end: int) -> int:
        """Return the first target of the chunk that ends before `end`."""
        candidates = range(self._first, end)
        index = bisect_left(candidates, -self._chunk_bytes, key=lambda first: -self._cost(first, end))
        return candidates[min(index, len(candidates) - 1)]

    def _max_targets(self) -> int:
        """Return the maximum number of targets in a chunk, reached by the first chunk (shortest targets)."""
        ends = range(self._first + 1, self._end + 1)
        count = bisect_right(ends, self._chunk_bytes, key=lambda end: self._cost(self._first, end))
        return max(count, 1)

    def _chunk_buffer(self, residues: int, targets: int) -> _ChunkBuffer:
        """Return device memory for a chunk: new memory for a resident one, else one of two buffers."""
        if self._resident:
            return self._new_buffer(residues, targets)
        buffer = self._buffers[0]
        if (
            buffer is None
            or len(buffer.sequences.residues) < residues
            or len(buffer.sequences.lengths) < targets
        ):
            if buffer is not None:
                # work on the GPU may still use the buffer
                buffer.used.synchronize()
                self._buffers[0] = buffer = None
            start, stop = self._targets.byte_range(self._first, self._end)
            buffer = self._new_buffer(max(residues, min(self._chunk_bytes, stop - start)), targets)
        self._buffers = [self._buffers[1], buffer]
        return buffer

    def _new_buffer(self, residues: int, targets: int) -> _ChunkBuffer:
        sequences = DeviceSequences(
            self._allocate(-(-residues // 16) * 16, np.dtype(np.uint8)),
            self._allocate(targets, np.dtype(np.int64)),
            self._allocate(targets, np.dtype(np.int32)),
        )
        return _ChunkBuffer(sequences, gpu_device.event(), gpu_device.event())

    def _copy_chunk(self, end: int) -> Chunk:
        """Queue the copies of a chunk; they wait for the work that still uses its buffer."""
        first = self._first_of_chunk(end)
        start, stop = self._targets.byte_range(first, end)
        max_targets = max(self._max_targets(), end - first)
        buffer = self._chunk_buffer(stop - start, end - first if self._resident else max_targets)
        stream, memory = self._copy_stream, buffer.sequences
        buffer.used.wait(stream)
        self._copy_through_pinned(self._targets.residues[start:stop], memory.residues, 0)
        self._copy_through_pinned(self._targets.offsets[first:end], memory.offsets, start)
        self._copy_through_pinned(self._targets.lengths[first:end], memory.lengths, 0)
        buffer.ready.record(stream)
        count = end - first
        sequences = DeviceSequences(
            memory.residues[: stop - start], memory.offsets[:count], memory.lengths[:count]
        )
        return Chunk(first, end, max_targets, sequences, buffer.ready, buffer.used)

    def _copy_through_pinned(self, source: np.ndarray, destination: Any, subtract: int) -> None:
        """Copy an array, minus `subtract`, to the GPU in pieces."""
        piece = PINNED_BYTES // source.itemsize

        def copy(begin: int) -> None:
            part = source[begin : begin + piece]
            buffer = self._pinned.get()
            content = buffer.memory()[: part.nbytes].view(part.dtype)
            if subtract:
                np.subtract(part, subtract, out=content)
            else:
                np.copyto(content, part)
            buffer.send(content, destination[begin : begin + len(part)], self._copy_stream)
            self._pinned.put(buffer)

        for _ in self._copy_threads.map(copy, range(0, len(source), piece)):
            pass
