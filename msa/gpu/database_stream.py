"""How a database gets to the GPU: chunk by chunk from the memory map, to stay there or to pass through.

The residues are copied once from the memory map into pinned buffers of fixed size and from there to the GPU,
while the GPU works on what it has: pinned buffers take turns, and copies have a thread and a stream of their
own. A database that fits stays, and later queries find it there. One that does not passes through two buffers
on the GPU, once per batch of queries: the next chunk is on its way while the present one is used, that of the
next pass too. Nothing of the database's size is ever copied on the host.

A pass goes from the last chunk to the first: a database is in order of length, and long targets score higher,
so what the first chunks of a pass hold says of most other targets that they are not among the best.

Sizes come from what the driver says is free. When an allocation fails all the same, because another process
took the memory in between, the chunk is halved and the pass goes on where it was.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
from numba import cuda

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.devices import GpuUnavailable
from msa.gpu.memory import Allocate, allocate_on_gpu, free_bytes, new_stream

PINNED_BYTES = 4 * 2**20
"""Of each of the buffers that copies go through."""
_SENDERS = 4
"""Threads that fill them: one alone copies 7 GB/s."""
_MOST_PINNED_BYTES = 2**28
"""Of all of them."""

MOST_CHUNK_BYTES = 2**30
"""Of residues in a chunk: enough to hide every overhead; offsets and scores of a chunk come on top."""

_NUMBERS = 8 + 4  # bytes of a target's offset and length
_PAD = 4


@dataclass(frozen=True)
class Chunk:
    """Consecutive targets on the GPU.

    Args:
        first, end: their places in the database.
        most: targets of the largest chunk of a pass.
        residues: device uint8 [bytes], as in the database.
        offsets: device int64 [end − first], first byte of each target in `residues`.
        lengths: device int32 [end − first].
        ready: event after which they are there.
        used: event to be recorded when the work on them has been queued.
    """

    first: int
    end: int
    most: int
    residues: Any
    offsets: Any
    lengths: Any
    ready: Any
    used: Any

    def __len__(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class _Room:
    """Device memory for one chunk of so many bytes and targets."""

    residues: Any
    offsets: Any
    lengths: Any
    ready: Any
    used: Any


def whole_bytes(targets: SequenceArrays, part: tuple[int, int], per_target: int) -> int:
    """GPU memory that targets take together, with what the filter needs for each of them."""
    start, stop = targets.byte_range(*part)
    return stop - start + (_NUMBERS + per_target) * (part[1] - part[0])


class Residency:
    """Consecutive targets of a database as one GPU has them. All but its copying is used by one thread.

    Args:
        targets: the database, memory-mapped.
        part: first target and end of those that this GPU holds.
        gpu: its number.
        budget: bytes of GPU memory that they may take, `per_target` included.
        per_target: bytes of GPU memory that the filter needs for each target of the largest chunk.
        allocate: how GPU memory is taken.
        most_chunk_bytes: of residues in a chunk.
    """

    def __init__(
        self,
        targets: SequenceArrays,
        part: tuple[int, int],
        gpu: int,
        budget: int,
        per_target: int,
        allocate: Allocate = allocate_on_gpu,
        most_chunk_bytes: int = MOST_CHUNK_BYTES,
    ) -> None:
        self._targets, self._allocate = targets, allocate
        self._first, self._end = part
        self._stays = whole_bytes(targets, part, per_target) <= budget
        # two chunks at a time, and what the filter needs for one of them
        self._chunk_bytes = most_chunk_bytes if self._stays else min(most_chunk_bytes, max(budget // 2, 1))
        self._bytes_per_target = 0 if self._stays else _NUMBERS + -(-per_target // 2)
        self._kept: list[Chunk] = []
        self._rooms: list[_Room | None] = [None, None]
        self._ahead: tuple[int, Future[Chunk]] | None = None
        self._copying = new_stream()
        self._pinned: SimpleQueue[_PinnedBuffer] = SimpleQueue()
        for _ in range(self._buffers()):
            self._pinned.put(_PinnedBuffer())
        self._thread = ThreadPoolExecutor(1, "copying", cuda.select_device, (gpu,))
        self._senders = ThreadPoolExecutor(_SENDERS, "sending", cuda.select_device, (gpu,))

    def _buffers(self) -> int:
        """How many pinned buffers there are: for a chunk that passes through, enough for all of it.

        Its memory on the GPU is free only when the chunk before the last is done. With all of it staged, work
        on it can be queued before that.
        """
        of_chunk = 0 if self._stays else -(-self._chunk_bytes // PINNED_BYTES)
        return min(2 * _SENDERS + of_chunk, _MOST_PINNED_BYTES // PINNED_BYTES)

    @property
    def stays(self) -> bool:
        """Whether all the targets stay on the GPU between passes."""
        return self._stays

    @property
    def whole(self) -> "Chunk | None":
        """The chunk that has all the targets and stays on the GPU, if there is one."""
        kept = self._kept[:1]
        return kept[0] if kept and (kept[0].first, kept[0].end) == (self._first, self._end) else None

    def begin(self) -> None:
        """Let the first chunk of a pass be copied, if there is one and it is not there."""
        if not self._kept and self._first < self._end:
            self._ask(self._end)

    def chunks(self, end: int, again: bool = False) -> Iterator[Chunk]:
        """One pass over the targets before target `end`, from the last chunk to the first.

        A chunk is valid until the one after the next is asked for.
        The user waits for a chunk's `ready` on its stream, and records `used` there before it asks for
        the next.

        Args:
            end: in the database.
            again: whether another pass follows.

        Raises:
            OutOfGpuMemory: there is no room for the next chunk; `shrink` and go on with another pass.
        """
        for chunk in list(self._kept):
            if chunk.end <= end:
                yield chunk
                end = chunk.first
        while end > self._first:
            self._ask(end)
            assert self._ahead is not None
            copied, self._ahead = self._ahead[1], None
            chunk = copied.result()
            if self._stays:
                self._kept.append(chunk)
            end = chunk.first
            # the room of the chunk before this one is free: what uses it has been queued
            if end > self._first:
                self._ask(end)
            elif again and not self._stays:
                self._ask(self._end)
            yield chunk

    def _ask(self, end: int) -> None:
        """Let the chunk that ends before target `end` be copied, unless that is under way."""
        if self._ahead is not None:
            if self._ahead[0] == end:
                return
            self._forget()
        self._ahead = end, self._thread.submit(self._copy, end)

    def _forget(self) -> None:
        if self._ahead is not None:
            self._ahead[1].exception()
            self._ahead = None

    def shrink(self, asked: int = 0) -> None:
        """Halve the chunks and give back all memory: there is less than was thought.

        Args:
            asked: bytes that were not to be had, for the message.

        Raises:
            GpuUnavailable: a chunk is as small as it can be.
        """
        if self._chunk_bytes <= _PAD:
            raise GpuUnavailable(
                f"the GPU has no memory left for a single target: {asked} bytes are asked for, "
                f"{free_bytes()} are free"
            )
        start, stop = self._targets.byte_range(self._first, self._end)
        self.release()
        self._stays = False
        self._chunk_bytes = max(min(self._chunk_bytes, stop - start) // 2, _PAD)

    def release(self) -> None:
        """Give back all GPU memory; the next pass copies the targets again."""
        self._forget()
        cuda.synchronize()
        self._kept.clear()
        self._rooms = [None, None]

    def close(self) -> None:
        """Give back all GPU memory and end the copying thread."""
        self.release()
        self._thread.shutdown()
        self._senders.shutdown()

    def _size(self, first: int, end: int) -> int:
        """What a chunk counts for."""
        start, stop = self._targets.byte_range(first, end)
        return stop - start + self._bytes_per_target * (end - first)

    def _start_of_chunk(self, end: int) -> int:
        """The first target of the chunk that ends before `end`."""
        firsts = range(self._first, end)
        place = bisect_left(firsts, -self._chunk_bytes, key=lambda first: -self._size(first, end))
        return firsts[min(place, len(firsts) - 1)]

    def _most_targets(self) -> int:
        """Targets of the largest chunk, which is that of the shortest."""
        ends = range(self._first + 1, self._end + 1)
        place = bisect_right(ends, self._chunk_bytes, key=lambda end: self._size(self._first, end))
        return max(place, 1)

    def _room(self, count: int, targets: int) -> _Room:
        """Device memory for so many bytes and targets."""
        if self._stays:
            return self._new_room(count, targets)
        room = self._rooms[0]
        if room is None or len(room.residues) < count or len(room.lengths) < targets:
            if room is not None:
                # nothing on the GPU may still use what is dropped
                room.used.synchronize()
                self._rooms[0] = room = None
            start, stop = self._targets.byte_range(self._first, self._end)
            room = self._new_room(max(count, min(self._chunk_bytes, stop - start)), targets)
        self._rooms = [self._rooms[1], room]
        return room

    def _new_room(self, count: int, targets: int) -> _Room:
        return _Room(
            self._allocate(-(-count // 16) * 16, np.dtype(np.uint8)),
            self._allocate(targets, np.dtype(np.int64)),
            self._allocate(targets, np.dtype(np.int32)),
            cuda.event(),
            cuda.event(),
        )

    def _copy(self, end: int) -> Chunk:
        """Queue the copies of a chunk; they wait for what still uses its memory."""
        first = self._start_of_chunk(end)
        start, stop = self._targets.byte_range(first, end)
        most = max(self._most_targets(), end - first)
        room = self._room(stop - start, end - first if self._stays else most)
        stream = self._copying
        room.used.wait(stream)
        self._through_pinned(self._targets.residues[start:stop], room.residues, 0)
        self._through_pinned(self._targets.offsets[first:end], room.offsets, start)
        self._through_pinned(self._targets.lengths[first:end], room.lengths, 0)
        room.ready.record(stream)
        count = end - first
        return Chunk(
            first, end, most, room.residues[: stop - start], room.offsets[:count], room.lengths[:count],
            room.ready, room.used,
        )  # fmt: skip

    def _through_pinned(self, source: np.ndarray, target: Any, subtract: int) -> None:
        """Copy numbers to the GPU, less `subtract`, piece by piece."""
        piece = PINNED_BYTES // source.itemsize

        def send(begin: int) -> None:
            part = source[begin : begin + piece]
            buffer = self._pinned.get()
            target[begin : begin + len(part)].copy_to_device(
                buffer.staged(part, subtract), stream=self._copying
            )
            buffer.sent.record(self._copying)
            self._pinned.put(buffer)

        for _ in self._senders.map(send, range(0, len(source), piece)):
            pass


class _PinnedBuffer:
    """Host memory that the GPU copies from while the host goes on."""

    def __init__(self) -> None:
        self._memory: np.ndarray | None = None
        self.sent = cuda.event()

    def staged(self, part: np.ndarray, subtract: int) -> np.ndarray:
        """`part` less `subtract`, once the buffer's last content has been sent."""
        self.sent.synchronize()
        if self._memory is None:
            self._memory = cuda.pinned_array(PINNED_BYTES, np.uint8)
        staged = self._memory[: part.nbytes].view(part.dtype)
        if subtract:
            np.subtract(part, subtract, out=staged)
        else:
            np.copyto(staged, part)
        return staged
