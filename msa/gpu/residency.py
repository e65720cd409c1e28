"""How a database gets to the GPU: chunk by chunk from the memory map, to stay there or to pass through.

The residues are copied once from the memory map into a pinned buffer of fixed size and from there to the GPU,
while the GPU works on what it has: two pinned buffers take turns, and copies have a stream of their own. A
database that fits stays, and later queries find it there. One that does not passes through two buffers on the
GPU, once per batch of queries. Nothing of the database's size is ever copied on the host.

Sizes come from what the driver says is free. When an allocation fails all the same, because another process
took the memory in between, the chunk is halved and the pass goes on where it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from msa.cpu.targets import Targets
from msa.gpu.devices import GpuUnavailable

PINNED_BYTES = 32 * 2**20
"""Of each of the two buffers that copies go through."""

MOST_CHUNK_BYTES = 2**30
"""Of residues in a chunk: enough to hide every overhead; offsets and scores of a chunk come on top."""

_BYTES_PER_TARGET = 8 + 4 + 4 + 12  # offset, length, score, place and score of a passing one
_PAD = 4


class OutOfGpuMemory(Exception):
    """An allocation on the GPU failed.

    Args:
        asked: bytes asked for.
    """

    def __init__(self, asked: int) -> None:
        self.asked = asked
        super().__init__(f"no {asked} bytes free on the GPU")


Allocate = Callable[[int, np.dtype[Any]], Any]
"""(elements, dtype) → device array of at least that many; raises OutOfGpuMemory."""


def allocate_on_gpu(count: int, dtype: np.dtype[Any]) -> Any:
    """A device array.

    Raises:
        OutOfGpuMemory: the driver has not that much.
    """
    try:
        return cuda.device_array(max(count, 1), dtype)
    except Exception as error:  # numba's and cuda-core's errors share no class
        if "OUT_OF_MEMORY" in str(error).upper().replace(" ", "_"):
            raise OutOfGpuMemory(max(count, 1) * dtype.itemsize) from error
        raise


@dataclass(frozen=True)
class Chunk:
    """Consecutive targets on the GPU.

    Args:
        first, end: their places in the database.
        residues: device uint8 [bytes], as in the database.
        offsets: device int64 [end − first], first byte of each target in `residues`.
        lengths: device int32 [end − first].
        ready: event after which they are there.
        used: event to be recorded when the work on them has been queued.
    """

    first: int
    end: int
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


class Residency:
    """The database as a GPU has it.

    Args:
        targets: the database, memory-mapped.
        budget: bytes of GPU memory that it may take, scores included.
        allocate: how GPU memory is taken.
        most_chunk_bytes: of residues in a chunk.
    """

    def __init__(
        self,
        targets: Targets,
        budget: int,
        allocate: Allocate = allocate_on_gpu,
        most_chunk_bytes: int = MOST_CHUNK_BYTES,
    ) -> None:
        self._targets, self._allocate = targets, allocate
        self._chunk_bytes = most_chunk_bytes
        whole = len(targets.residues) + _BYTES_PER_TARGET * len(targets)
        self._stays = whole <= budget
        if not self._stays:
            # two chunks at a time, and their targets' numbers
            per_residue = whole / max(len(targets.residues), 1)
            self._chunk_bytes = max(1, min(most_chunk_bytes, int(budget / 2 / per_residue)))
        self._kept: list[Chunk] = []
        self._rooms: list[_Room] = []
        self._copying = cuda.stream()
        self._pinned = [_PinnedBuffer(), _PinnedBuffer()]
        self.copied_bytes = 0

    @property
    def stays(self) -> bool:
        """Whether the whole database stays on the GPU between passes."""
        return self._stays

    @property
    def chunk_bytes(self) -> int:
        """Residue bytes of a chunk, at most; a longer target is a chunk of its own."""
        return self._chunk_bytes

    def chunks(self, first: int = 0) -> Iterator[Chunk]:
        """One pass over the database in order, from target `first`.

        A chunk is valid until the one after the next is asked for.
        The user waits for a chunk's `ready` on its stream, and records `used` there before it asks for
        the next.

        Raises:
            GpuUnavailable: not even a single target fits.
        """
        for chunk in self._kept:
            if chunk.first >= first:
                yield chunk
                first = chunk.end
        turn = 0
        while first < len(self._targets):
            chunk = self._next(first, turn)
            if self._stays:
                self._kept.append(chunk)
            turn, first = 1 - turn, chunk.end
            yield chunk

    def shrink(self) -> None:
        """Halve the chunks and give back all memory: there is less than was thought.

        Raises:
            GpuUnavailable: a chunk is as small as it can be.
        """
        if self._chunk_bytes <= _PAD:
            raise GpuUnavailable("the GPU has no memory left for a single target: other programs use it")
        largest = max((len(room.residues) for room in self._rooms), default=self._chunk_bytes)
        self.release()
        self._stays = False
        self._chunk_bytes = max(min(self._chunk_bytes, largest) // 2, _PAD)

    def release(self) -> None:
        """Give back all GPU memory; the next pass copies the database again."""
        cuda.synchronize()
        self._kept.clear()
        self._rooms.clear()

    def _next(self, first: int, turn: int) -> Chunk:
        while True:
            try:
                end = self._end_of_chunk(first)
                return self._copy(first, end, self._room(first, end, turn))
            except OutOfGpuMemory:
                self.shrink()

    def _end_of_chunk(self, first: int) -> int:
        """The target before which the chunk that begins with `first` ends."""
        limit = int(self._targets.offsets[first]) + self._chunk_bytes
        end = int(np.searchsorted(self._targets.offsets, limit, side="right")) - 1
        if limit >= len(self._targets.residues):
            end = len(self._targets)
        return max(end, first + 1)

    def _bytes(self, first: int, end: int) -> tuple[int, int]:
        offsets = self._targets.offsets
        stop = int(offsets[end]) if end < len(self._targets) else len(self._targets.residues)
        return int(offsets[first]), stop

    def _room(self, first: int, end: int, turn: int) -> _Room:
        start, stop = self._bytes(first, end)
        if not self._stays:
            while len(self._rooms) <= turn:
                self._rooms.append(self._new_room(0, 0))
            room = self._rooms[turn]
            if len(room.residues) >= stop - start and len(room.lengths) >= end - first:
                return room
            # one of two that are too small: nothing on the GPU may still use it
            room.used.synchronize()
            self._rooms[turn] = room = self._new_room(stop - start, end - first)
            return room
        return self._new_room(stop - start, end - first)

    def _new_room(self, count: int, targets: int) -> _Room:
        return _Room(
            self._allocate(-(-count // 16) * 16, np.dtype(np.uint8)),
            self._allocate(targets, np.dtype(np.int64)),
            self._allocate(targets, np.dtype(np.int32)),
            cuda.event(),
            cuda.event(),
        )

    def _copy(self, first: int, end: int, room: _Room) -> Chunk:
        """Queue the copies of a chunk; they wait for what still uses its memory."""
        start, stop = self._bytes(first, end)
        stream = self._copying
        room.used.wait(stream)
        self._through_pinned(self._targets.residues[start:stop], room.residues, 0)
        self._through_pinned(self._targets.offsets[first:end], room.offsets, start)
        self._through_pinned(self._targets.lengths[first:end], room.lengths, 0)
        room.ready.record(stream)
        count = end - first
        return Chunk(
            first, end, room.residues[: stop - start], room.offsets[:count], room.lengths[:count],
            room.ready, room.used,
        )  # fmt: skip

    def _through_pinned(self, source: np.ndarray, target: Any, subtract: int) -> None:
        """Copy numbers to the GPU, less `subtract`, piece by piece."""
        piece = PINNED_BYTES // source.itemsize
        for begin in range(0, len(source), piece):
            part = source[begin : begin + piece]
            buffer = self._pinned[0]
            staged = buffer.staged(part, subtract)
            target[begin : begin + len(part)].copy_to_device(staged, stream=self._copying)
            buffer.sent.record(self._copying)
            self._pinned.reverse()
            self.copied_bytes += part.nbytes


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
