"""What the Gotoh kernels compute with: 32-bit sums and maxima, and those of pairs of 16-bit numbers.

numba widens int32 sums to 64 bits; these do not, and each is one instruction or two (VIADDMNMX on sm_90). A
pair is an int32 whose low half is its first number; its sums wrap. Under numba's simulator each name
is a plain Python function that does the same.
"""

from typing import Any

import numpy as np
from numba.core import config

_SIMULATED = bool(config.ENABLE_CUDASIM)


def _signed(value: int) -> int:
    """The low 32 bits as a signed number."""
    return ((int(value) + 2**31) & 0xFFFF_FFFF) - 2**31


def _pair(word: int, kind: type = np.int16) -> np.ndarray:
    return np.array([word], np.int64).astype(np.int32).view(kind)


def _word(pair: np.ndarray) -> int:
    return int(np.ascontiguousarray(pair).view(np.int32)[0])


def _simulated_add(a: int, b: int) -> int:
    return _signed(int(a) + int(b))


def _simulated_add_greater(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c))


def _simulated_add_greater_zero(a: int, b: int, c: int) -> int:
    return max(_simulated_add(a, b), int(c), 0)


def _simulated_scale_add(a: int, b: int, c: int) -> int:
    return _signed(int(a) * int(b) + int(c))


def _simulated_low_short(a: int) -> int:
    return ((int(a) + 2**15) & 0xFFFF) - 2**15


def _simulated_high_short(a: int) -> int:
    return int(a) >> 16


def _simulated_equal_bit(a: int, b: int, word: int, place: int) -> int:
    return _signed(int(word) | int(a == b) << place)


def _simulated_add_pairs(a: int, b: int) -> int:
    return _word(_pair(a) + _pair(b))


def _simulated_add_greater_pairs(a: int, b: int, c: int) -> int:
    return _word(np.maximum(_pair(a) + _pair(b), _pair(c)))


def _simulated_add_greater_zero_pairs(a: int, b: int, c: int) -> int:
    return _word(np.maximum(np.maximum(_pair(a) + _pair(b), _pair(c)), np.int16(0)))


def _simulated_greater_unsigned_pairs(a: int, b: int) -> int:
    return _word(np.maximum(_pair(a, np.uint16), _pair(b, np.uint16)))


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
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    _I32 = ir.IntType(32)

    def _constant(value: int) -> Any:
        return ir.Constant(_I32, value)

    def _assembly(text: str, operands: int) -> Any:
        def emit(builder: Any, *arguments: Any) -> Any:
            kind = ir.FunctionType(_I32, [_I32] * operands)
            return builder.call(ir.InlineAsm(kind, text, ",".join(["=r"] + ["r"] * operands)), arguments)

        return emit

    def _words(emit: Any, operands: int) -> Any:
        """A function of numba.cuda from int32 arguments to int32."""
        signature = types.int32(*[types.int32] * operands)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *arguments)

        def one(typingctx, a):  # type: ignore[no-untyped-def]
            return signature, codegen

        def two(typingctx, a, b):  # type: ignore[no-untyped-def]
            return signature, codegen

        def three(typingctx, a, b, c):  # type: ignore[no-untyped-def]
            return signature, codegen

        def four(typingctx, a, b, c, d):  # type: ignore[no-untyped-def]
            return signature, codegen

        return intrinsic((one, two, three, four)[operands - 1])

    def _greater(builder: Any, a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_signed(">", a, b), a, b)

    def _emit_add(builder: Any, a: Any, b: Any) -> Any:
        return builder.add(a, b)

    def _emit_add_greater(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return _greater(builder, builder.add(a, b), c)

    def _emit_add_greater_zero(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return _greater(builder, _greater(builder, builder.add(a, b), c), _constant(0))

    def _emit_scale_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return builder.add(builder.mul(a, b), c)

    def _emit_low_short(builder: Any, a: Any) -> Any:
        return builder.ashr(builder.shl(a, _constant(16)), _constant(16))

    def _emit_high_short(builder: Any, a: Any) -> Any:
        return builder.ashr(a, _constant(16))

    def _emit_equal_bit(builder: Any, a: Any, b: Any, word: Any, place: Any) -> Any:
        bit = builder.zext(builder.icmp_signed("==", a, b), _I32)
        return builder.or_(word, builder.shl(bit, place))

    _ADD_GREATER_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"
    _ADD_GREATER_ZERO_PAIRS = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.relu.s16x2 $0, t, $3; }"

    add = _words(_emit_add, 2)
    add_greater = _words(_emit_add_greater, 3)
    add_greater_zero = _words(_emit_add_greater_zero, 3)
    scale_add = _words(_emit_scale_add, 3)
    low_short = _words(_emit_low_short, 1)
    high_short = _words(_emit_high_short, 1)
    equal_bit = _words(_emit_equal_bit, 4)
    add_pairs = _words(_assembly("add.s16x2 $0, $1, $2;", 2), 2)
    add_greater_pairs = _words(_assembly(_ADD_GREATER_PAIRS, 3), 3)
    add_greater_zero_pairs = _words(_assembly(_ADD_GREATER_ZERO_PAIRS, 3), 3)
    greater_unsigned_pairs = _words(_assembly("max.u16x2 $0, $1, $2;", 2), 2)
