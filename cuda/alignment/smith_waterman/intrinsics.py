"""Intrinsics of the Gotoh kernels: 32-bit sums and maxima, and those of pairs of 16-bit numbers.

numba widens int32 sums to 64 bits; these do not. Each is one or two instructions (VIADDMNMX on sm_90). A pair
is an int32 with its first number in the low half; sums of pairs wrap around.

`advance_pairs` computes a row of the packed kernel. As one intrinsic it compiles several times faster than
as Python statements, with the same machine code.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.cuda import types
from numba.cuda.extending import intrinsic

from cuda.alignment.intrinsics import I32, constant, emit_permute, inline_ptx, word_intrinsic
from cuda.alignment.smith_waterman.generator import key_terms, pair_selector


def _greater(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed(">", a, b), a, b)


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

_add_pairs = inline_ptx("add.s16x2 $0, $1, $2;", 2)
_add_greater_pairs = inline_ptx(_ADD_GREATER_PAIRS, 3)
_add_greater_zero_pairs = inline_ptx(_ADD_GREATER_ZERO_PAIRS, 3)
_greater_unsigned_pairs = inline_ptx("max.u16x2 $0, $1, $2;", 2)


def _advance_pairs(  # type: ignore[no-untyped-def]
    typingctx,
    profile,
    address_a,
    address_b,
    lanes,
    opening,
    extending,
    diagonal,
    insertion,
    scores,
    deletions,
):
    word, address = types.int32, types.uint32
    result = types.Tuple((scores, deletions, word, word))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, *addresses, stride, opening, extending, diagonal, insertion, h_tuple, d_tuple = arguments
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=array).data
        starts = [builder.zext(value, ir.IntType(64)) for value in addresses]
        stride = builder.zext(stride, ir.IntType(64))
        columns = scores.count
        h = [builder.extract_value(h_tuple, c) for c in range(columns)]
        d = [builder.extract_value(d_tuple, c) for c in range(columns)]
        words: list[Any] = []
        largest = None
        for c in range(columns):
            if c % 4 == 0:
                offset = builder.mul(stride, ir.Constant(ir.IntType(64), c // 4))
                words = [builder.load(builder.gep(data, [builder.add(start, offset)])) for start in starts]
            above = h[c]
            score = emit_permute(builder, *words, constant(pair_selector(c)))
            t = _add_greater_zero_pairs(builder, diagonal, score, d[c])
            h[c] = _add_greater_pairs(builder, insertion, opening, t)
            insertion = _add_greater_pairs(builder, insertion, extending, t)
            d[c] = _add_greater_pairs(builder, d[c], extending, _add_pairs(builder, h[c], opening))
            factor, term = key_terms(c, columns)
            key = _emit_scale_add(builder, h[c], constant(factor), constant(term))
            largest = key if largest is None else _greater_unsigned_pairs(builder, largest, key)
            diagonal = above
        parts = [
            context.make_tuple(builder, scores, h),
            context.make_tuple(builder, deletions, d),
            insertion,
            largest,
        ]
        return context.make_tuple(builder, result, parts)

    arguments = profile, address, address, word, word, word, word, word, scores, deletions
    return result(*arguments), codegen


def repeated(count: int) -> Any:
    """Return a numba.cuda function from a word to a tuple of `count` copies of it."""
    result = types.UniTuple(types.int32, count)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, result, list(arguments) * count)

    def typing(typingctx, word):  # type: ignore[no-untyped-def]
        return result(types.int32), codegen

    return intrinsic(typing)


advance_pairs = intrinsic(_advance_pairs)
add = word_intrinsic(ir.IRBuilder.add, 2)
add_greater = word_intrinsic(_emit_add_greater, 3)
add_greater_zero = word_intrinsic(_emit_add_greater_zero, 3)
scale_add = word_intrinsic(_emit_scale_add, 3)
low_short = word_intrinsic(_emit_low_short, 1)
high_short = word_intrinsic(_emit_high_short, 1)
equal_bit = word_intrinsic(_emit_equal_bit, 4)
greater_unsigned_pairs = word_intrinsic(_greater_unsigned_pairs, 2)
