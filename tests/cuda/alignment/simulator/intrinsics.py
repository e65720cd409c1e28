"""Stand-ins of `cuda.alignment.intrinsics` in numba's simulator, with the same results.

A shuffle is a barrier of the whole block, so a block must be one warp whose threads all make the same calls.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def to_signed(value: int) -> int:
    """Return the low 32 bits of a number as a signed number."""
    return ((int(value) + 2**31) & 0xFFFF_FFFF) - 2**31


def to_word(values: np.ndarray) -> int:
    """Return four bytes of an array as a signed 32-bit number."""
    return int(np.ascontiguousarray(values).view(np.int32)[0])


def permute(a: int, b: int, selector: int) -> int:
    pool = np.array([a, b], np.int64).astype(np.int32).view(np.uint8)
    selected = []
    for position in range(4):
        nibble = selector >> (4 * position) & 0xF
        byte = int(pool[nibble & 7])
        selected.append((255 if byte & 0x80 else 0) if nibble & 8 else byte)
    return to_word(np.array(selected, np.uint8))


_exchanged: dict[int, int] = {}


def _exchange(value: int, source_lane: Callable[[int], int]) -> int:
    """Publish a value to the block; return the value of thread `source_lane(index of this thread)`."""
    thread: Any = threading.current_thread()
    own = thread.threadIdx.x
    _exchanged[own] = int(value)
    thread.syncthreads()
    received = _exchanged[source_lane(own)]
    thread.syncthreads()
    return received


def shuffle_up(value: int) -> int:
    return _exchange(value, lambda own: max(own - 1, 0))


def shuffle_xor(value: int, mask: int) -> int:
    return _exchange(value, lambda own: own ^ mask)


def shuffle_first(value: int) -> int:
    return _exchange(value, lambda own: 0)
