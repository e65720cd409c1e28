"""Device memory in large segments from the driver, divided into blocks.

The driver waits for all work queued on the GPU before it frees memory, and sometimes before it allocates it.
The filter of the next queries is queued while earlier ones are aligned, so each such call would stall the
alignment. Freed blocks are therefore kept for reuse. Each thread has its own blocks and uses them on its own
streams, so a block is reused only after the work queued on it. The filter's thread frees an array only when
its work is done.
"""

import contextlib
import threading
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass

from cuda import driver
from cuda.driver import DriverError, handle

_ALIGNMENT = 512
"""Block sizes are multiples of this number of bytes."""
_SEGMENT_STEP = 2 * 2**20
"""Segment sizes are multiples of it; it is the size of a page of GPU memory."""
_MIN_SEGMENT = 16 * 2**20
"""Smallest segment, unless the GPU has less memory left; most arrays of a thread fit in one."""


@dataclass(frozen=True, eq=False)
class Block:
    """A block of device memory that goes back to its arena when it is no longer referenced.

    Args:
        address: of its first byte.
        size: bytes.
        arena: the owner.
    """

    address: int
    size: int
    arena: "_Arena"

    def __del__(self) -> None:
        # may run at any point of any thread, even while that thread holds the arena's lock
        self.arena.returned.append((self.address, self.size))


class MemoryPool:
    """The memory of one GPU that this process uses for arrays; all methods may be called by any thread."""

    def __init__(self) -> None:
        self._arenas: dict[int, _Arena] = {}

    def allocate(self, size: int) -> Block:
        """Return a block of at least this many bytes, for use by the calling thread.

        Raises:
            DriverError: there is not enough memory.
        """
        thread, rounded = threading.get_ident(), -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        arena = self._arenas.get(thread)
        if arena is None:
            arena = self._arenas.setdefault(thread, _Arena())
        address = arena.take(rounded)
        if address is None:
            address, segment = self._new_segment(rounded)
            arena.add_segment(address, segment, rounded)
        return Block(address, rounded, arena)

    def reserve(self, size: int) -> None:
        """Allocate memory for later blocks of the calling thread, if there is enough."""
        with contextlib.suppress(DriverError):
            self.allocate(size)

    def trim(self, min_size: int = 0) -> None:
        """Return unused segments of at least a size to the driver, which waits until the GPU is idle."""
        for arena in list(self._arenas.values()):
            for address in arena.remove_unused(min_size):
                driver.release("cuMemFree_v2", address)

    def _new_segment(self, size: int) -> tuple[int, int]:
        """Return address and size of a new segment for a block of a size; trims the pool if necessary."""
        smallest = -(-size // _SEGMENT_STEP) * _SEGMENT_STEP
        segment = max(smallest, _MIN_SEGMENT)
        try:
            return handle("cuMemAlloc_v2", segment), segment
        except DriverError as error:
            if error.name != driver.OUT_OF_MEMORY:
                raise
        self.trim()
        return handle("cuMemAlloc_v2", smallest), smallest


class _Arena:
    """The segments of one thread, and their free blocks, which are as large as possible.

    Attributes:
        returned: address and size of blocks that are not used any more, in any order.
    """

    def __init__(self) -> None:
        self.returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        # address → size
        self._segments: dict[int, int] = {}
        # sorted pairs of size and address; the same blocks by their first address, and by their end
        self._free: list[tuple[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._sizes_by_end: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """Return the address of a block from the smallest free one that is large enough; None without one."""
        with self._lock:
            self._collect()
            index = bisect_left(self._free, (size, 0))
            if index == len(self._free):
                return None
            free_size, address = self._free[index]
            self._remove(address)
            if free_size > size:
                self._add(address + size, free_size - size)
            return address

    def add_segment(self, address: int, size: int, used: int) -> None:
        """Add a segment from the driver, whose first bytes are in use."""
        with self._lock:
            self._segments[address] = size
            if size > used:
                self._add(address + used, size - used)

    def remove_unused(self, min_size: int) -> list[int]:
        """Remove all segments of at least a size without blocks in use; return their addresses."""
        with self._lock:
            self._collect()
            unused = [
                address
                for address, size in self._segments.items()
                if size >= min_size and self._sizes.get(address) == size
            ]
            for address in unused:
                self._remove(address)
                del self._segments[address]
            return unused

    def _collect(self) -> None:
        """Add the returned blocks to the free ones."""
        with contextlib.suppress(IndexError):
            while True:
                self._add(*self.returned.popleft())

    def _add(self, address: int, size: int) -> None:
        """Add a free block, joined with the free blocks before and after it in its segment."""
        if address not in self._segments and address in self._sizes_by_end:
            before = self._sizes_by_end[address]
            address, size = address - before, size + before
            self._remove(address)
        end = address + size
        if end not in self._segments and end in self._sizes:
            size += self._sizes[end]
            self._remove(end)
        insort(self._free, (size, address))
        self._sizes[address] = self._sizes_by_end[address + size] = size

    def _remove(self, address: int) -> None:
        """Remove a free block."""
        size = self._sizes.pop(address)
        del self._sizes_by_end[address + size]
        del self._free[bisect_left(self._free, (size, address))]
