"""What the Gotoh kernels compute with: 32-bit sums and maxima, and those of pairs of 16-bit numbers.

numba widens int32 sums to 64 bits; these do not, and each is one instruction or two (VIADDMNMX on sm_90). A
pair is an int32 whose low half is its first number; its sums wrap. Under numba's simulator each name
is a plain Python function that does the same.
"""

from typing import Any

import numpy as np
from numba.core import config

from cuda.alignment.assembly import as_word, signed

_SIMULATED = bool(config.ENABLE_CUDASIM)


def _pair(word: int, kind: type = np.int16) -> np.ndarray:
    return np.array([word], np.int64).astype(np.int32).view(kind)


def _simulated_add(a: int, b: int) -> int:
    return signed(int(a) + int(b))


def _simulated_add_greater(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c))


def _simulated_add_greater_zero(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c), 0)


def _simulated_scale_add(a: int, b: int, c: int) -> int:
    return signed(int(a) * int(b) + int(c))


def _simulated_low_short(a: int) -> int:
    return ((int(a) + 2**15) & 0xFFFF) - 2**15


def _simulated_high_short(a: int) -> int:
    return int(a) >> 16


def _simulated_equal_bit(a: int, b: int, word: int, place: int) -> int:
    return signed(int(word) | int(a == b) << place)


def _simulated_add_pairs(a: int, b: int) -> int:
    return as_word(_pair(a) + _pair(b))


def _simulated_add_greater_pairs(a: int, b: int, c: int) -> int:
    return as_word(np.maximum(_pair(a) + _pair(b), _pair(c)))


def _simulated_add_greater_zero_pairs(a: int, b: int, c: int) -> int:
    return as_word(np.maximum(np.maximum(_pair(a) + _pair(b), _pair(c)), np.int16(0)))


def _simulated_greater_unsigned_pairs(a: int, b: int) -> int:
    return as_word(np.maximum(_pair(a, np.uint16), _pair(b, np.uint16)))


if _SIMULATED:
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
    from cuda.alignment.assembly import I32, assembly, constant, words

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

    def _emit_equal_bit(builder: Any, a: Any, b: Any, word: Any, place: Any) -> Any:
        bit = builder.zext(builder.icmp_signed("==", a, b), I32)
        return builder.or_(word, builder.shl(bit, place))

    _ADD_GREATER_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"
    _ADD_GREATER_ZERO_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.relu.s16x2 $0, t, $3; }"

    add = words(_emit_add, 2)
    add_greater = words(_emit_add_greater, 3)
    add_greater_zero = words(_emit_add_greater_zero, 3)
    scale_add = words(_emit_scale_add, 3)
    low_short = words(_emit_low_short, 1)
    high_short = words(_emit_high_short, 1)
    equal_bit = words(_emit_equal_bit, 4)
    add_pairs = words(assembly("add.s16x2 $0, $1, $2;", 2), 2)
    add_greater_pairs = words(assembly(_ADD_GREATER_PAIRS, 3), 3)
    add_greater_zero_pairs = words(assembly(_ADD_GREATER_ZERO_PAIRS, 3), 3)
    greater_unsigned_pairs = words(assembly("max.u16x2 $0, $1, $2;", 2), 2)
