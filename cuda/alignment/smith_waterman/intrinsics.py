"""Intrinsics of the Gotoh kernels: 32-bit sums and maxima, and those of pairs of 16-bit numbers.

numba widens int32 sums to 64 bits; these do not. Each is one or two instructions (VIADDMNMX on sm_90). A pair
is an int32 with its first number in the low half; sums of pairs wrap around.
"""

from typing import Any

import numpy as np

from cuda.alignment.intrinsics import to_signed, to_word
from cuda.alignment.kernel_cache import SIMULATED


def _pair(word: int, kind: type = np.int16) -> np.ndarray:
    return np.array([word], np.int64).astype(np.int32).view(kind)


def _simulated_add(a: int, b: int) -> int:
    return to_signed(int(a) + int(b))


def _simulated_add_greater(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c))


def _simulated_add_greater_zero(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c), 0)


def _simulated_scale_add(a: int, b: int, c: int) -> int:
    return to_signed(int(a) * int(b) + int(c))


def _simulated_low_short(a: int) -> int:
    return ((int(a) + 2**15) & 0xFFFF) - 2**15


def _simulated_high_short(a: int) -> int:
    return int(a) >> 16


def _simulated_equal_bit(a: int, b: int, word: int, position: int) -> int:
    return to_signed(int(word) | int(a == b) << position)


def _simulated_add_pairs(a: int, b: int) -> int:
    return to_word(_pair(a) + _pair(b))


def _simulated_add_greater_pairs(a: int, b: int, c: int) -> int:
    return to_word(np.maximum(_pair(a) + _pair(b), _pair(c)))


def _simulated_add_greater_zero_pairs(a: int, b: int, c: int) -> int:
    return to_word(np.maximum(np.maximum(_pair(a) + _pair(b), _pair(c)), np.int16(0)))


def _simulated_greater_unsigned_pairs(a: int, b: int) -> int:
    return to_word(np.maximum(_pair(a, np.uint16), _pair(b, np.uint16)))


if SIMULATED:
    add: Any = _simulated_add
    add_greater: Any = _simulated_add_greater
    add_greater_zero: Any = _simulated_add_greater_zero
    scale_add: Any = _simulated_scale_add
    low_short: Any = _simulated_low_short
    high_short: Any = _simulated_high_short
    equal_bit: Any = _simulated_equal_bit
    add_pairs: Any = _simulated_add_pairs
    add_greater_pairs: Any = _simulated_add_greater_pairs
    add_greater_zero_pairs: Any = _simulated_add_greater_zero_pairs
    greater_unsigned_pairs: Any = _simulated_greater_unsigned_pairs
else:
    # the simulator has no LLVM types
    from cuda.alignment.intrinsics import I32, constant, inline_ptx, word_intrinsic

    def _greater(builder: Any, a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_signed(">", a, b), a, b)

    def _emit_add(builder: Any, a: Any, b: Any) -> Any:
        return builder.add(a, b)

    def _emit_add_greater(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return _greater(builder, builder.add(a, b), c)

    def _emit_add_greater_zero(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return _greater(builder, _greater(builder, builder.add(a, b), c), constant(0))

    def _emit_scale_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return builder.add(builder.mul(a, b), c)

    def _emit_low_short(builder: Any, a: Any) -> Any:
        return builder.ashr(builder.shl(a, constant(16)), constant(16))

    def _emit_high_short(builder: Any, a: Any) -> Any:
        return builder.ashr(a, constant(16))

    def _emit_equal_bit(builder: Any, a: Any, b: Any, word: Any, position: Any) -> Any:
        bit = builder.zext(builder.icmp_signed("==", a, b), I32)
        return builder.or_(word, builder.shl(bit, position))

    _ADD_GREATER_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"
    _ADD_GREATER_ZERO_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.relu.s16x2 $0, t, $3; }"

    add = word_intrinsic(_emit_add, 2)
    add_greater = word_intrinsic(_emit_add_greater, 3)
    add_greater_zero = word_intrinsic(_emit_add_greater_zero, 3)
    scale_add = word_intrinsic(_emit_scale_add, 3)
    low_short = word_intrinsic(_emit_low_short, 1)
    high_short = word_intrinsic(_emit_high_short, 1)
    equal_bit = word_intrinsic(_emit_equal_bit, 4)
    add_pairs = word_intrinsic(inline_ptx("add.s16x2 $0, $1, $2;", 2), 2)
    add_greater_pairs = word_intrinsic(inline_ptx(_ADD_GREATER_PAIRS, 3), 3)
    add_greater_zero_pairs = word_intrinsic(inline_ptx(_ADD_GREATER_ZERO_PAIRS, 3), 3)
    greater_unsigned_pairs = word_intrinsic(inline_ptx("max.u16x2 $0, $1, $2;", 2), 2)
