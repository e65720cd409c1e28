"""Stand-ins of `cuda.alignment.gapless.intrinsics` in numba's simulator, with the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cuda.alignment.gapless.layout import vector_loads
from cuda.alignment.intrinsics import to_signed, to_word  # stand-ins of `tests/simulator_startup`


def unmask(word: int) -> int:
    codes = np.array([word], np.int64).astype(np.int32).view(np.uint8)
    return to_word(np.where(codes & 32, 20, codes).astype(np.uint8))


def cut(word: int, count: int, fill: int) -> int:
    keep = (1 << 8 * min(max(int(count), 0), 4)) - 1
    return to_signed((int(word) & keep) | (int(fill) & ~keep))


def row(base: int, word: int, index: int, stride: int) -> int:
    return int(base) + (int(word) >> 8 * index & 255) * stride


def shared_address(array: Any) -> int:
    return 0


Words = tuple[int, ...]


def _scores(array: Any, addresses: Words, stride: int, count: int) -> np.ndarray:
    """Read the scores of a row, int32 [count]."""
    parts = []
    for load in vector_loads(count):
        first = (int(addresses[load.width_index]) + load.repeat * stride) // 4
        parts.append(np.array([int(word) for word in array[first : first + load.words]], np.int32))
    return np.concatenate(parts)


def _integer_sums(before: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return np.maximum(before + scores, before.dtype.type(0))


def _saturated_sums(before: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Add with one rounding, like a fused multiply-add; a double holds every sum of two halves."""
    with np.errstate(over="ignore"):
        return np.clip(before.astype(np.float64) + scores, 0, 1).astype(np.float16)


def _advance(
    kind: type, compared: type, better: Any = np.maximum, byte_entries: bool = False
) -> Callable[..., Any]:
    add = _saturated_sums if byte_entries else _integer_sums

    def advance(
        array: Any, addresses: Words, stride: int, border: int, cells: Words, best: Words
    ) -> tuple[Words, Words]:
        words = _scores(array, addresses, stride, len(cells) // (2 if byte_entries else 1))
        scores = np.stack([words << 8, words], 1).reshape(-1) if byte_entries else words
        before = np.array((border, *cells[:-1]), np.int64).astype(np.int32).view(kind)
        updated = add(before, scores.view(kind)).view(np.int32)
        chains = np.array(best, np.int64).astype(np.int32)
        # chain k % n takes counted pairs 2 k and 2 k + 1
        counted = updated[1::2] if byte_entries else updated
        for start in range(0, len(counted), 2 * len(best)):
            for parity in (0, 1):
                part = counted[start + parity : start + 2 * len(best) : 2]
                kept = chains[: len(part)].view(compared)
                chains[: len(part)] = better(kept, part.copy().view(compared)).view(np.int32)
        return tuple(updated.tolist()), tuple(chains.tolist())

    return advance


def _score(kind: type, byte_entries: bool = False) -> Callable[[Words, Words], int]:
    def score(cells: Words, best: Words) -> int:
        words = (*best, *cells[::2]) if byte_entries else best
        numbers = np.array(words, np.int64).astype(np.int32).view(kind)
        return 0x3C00 - int(numbers.min()) if byte_entries else int(numbers.max())

    return score


def repeated(count: int, value: int) -> Callable[[], Words]:
    return lambda: (value,) * count


advance_halves = _advance(np.float16, np.float16)
advance_halves_sm90 = _advance(np.float16, np.int16)
advance_shorts_sm90 = _advance(np.int16, np.int16)
advance_bytes = _advance(np.float16, np.float16, np.minimum, byte_entries=True)
advance_bytes_sm90 = _advance(np.float16, np.int16, np.minimum, byte_entries=True)
score_halves = score_halves_sm90 = _score(np.float16)
score_shorts_sm90 = _score(np.int16)
score_bytes = score_bytes_sm90 = _score(np.int16, byte_entries=True)
