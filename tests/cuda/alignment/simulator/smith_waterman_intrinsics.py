"""Stand-ins of `cuda.alignment.smith_waterman.intrinsics` in numba's simulator, with the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cuda.alignment.intrinsics import permute, to_signed, to_word  # stand-ins of `tests/simulator_startup`
from cuda.alignment.smith_waterman.generator import key_terms, pair_selector


def _pair(word: int, kind: type = np.int16) -> np.ndarray:
    return np.array([word], np.int64).astype(np.int32).view(kind)


def add(a: int, b: int) -> int:
    return to_signed(int(a) + int(b))


def add_greater(a: int, b: int, c: int) -> int:
    return max(add(a, b), int(c))


def add_greater_zero(a: int, b: int, c: int) -> int:
    return max(add(a, b), int(c), 0)


def scale_add(a: int, b: int, c: int) -> int:
    return to_signed(int(a) * int(b) + int(c))


def low_short(a: int) -> int:
    return ((int(a) + 2**15) & 0xFFFF) - 2**15


def high_short(a: int) -> int:
    return int(a) >> 16


def equal_bit(a: int, b: int, word: int, position: int) -> int:
    return to_signed(int(word) | int(a == b) << position)


def add_pairs(a: int, b: int) -> int:
    return to_word(_pair(a) + _pair(b))


def add_greater_pairs(a: int, b: int, c: int) -> int:
    return to_word(np.maximum(_pair(a) + _pair(b), _pair(c)))


def add_greater_zero_pairs(a: int, b: int, c: int) -> int:
    return to_word(np.maximum(np.maximum(_pair(a) + _pair(b), _pair(c)), np.int16(0)))


def greater_unsigned_pairs(a: int, b: int) -> int:
    return to_word(np.maximum(_pair(a, np.uint16), _pair(b, np.uint16)))


def advance_pairs(
    profile: Any,
    address_a: int,
    address_b: int,
    lanes: int,
    opening: int,
    extending: int,
    diagonal: int,
    insertion: int,
    scores: tuple[int, ...],
    deletions: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    h, d, largest = list(scores), list(deletions), 0
    for c, above in enumerate(scores):
        a, b = (profile[int(address) + c // 4 * lanes] for address in (address_a, address_b))
        t = add_greater_zero_pairs(diagonal, permute(a, b, pair_selector(c)), d[c])
        h[c] = add_greater_pairs(insertion, opening, t)
        insertion = add_greater_pairs(insertion, extending, t)
        d[c] = add_greater_pairs(d[c], extending, add_pairs(h[c], opening))
        key = scale_add(h[c], *key_terms(c, len(h)))
        largest = greater_unsigned_pairs(largest, key)
        diagonal = above
    return tuple(h), tuple(d), insertion, largest


def repeated(count: int) -> Callable[[int], tuple[int, ...]]:
    return lambda word: (word,) * count
