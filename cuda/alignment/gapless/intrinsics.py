"""Intrinsics of the gapless kernels, on 32-bit words and pairs of 16-bit numbers packed into them.

A pair is an int32 with its first number in the low half.

    unmask(word)                     four residue codes without mask bits; masked ones become X
    cut(word, count, fill)           first `count` bytes (clamped to 0 … 4) of `word`, the others of `fill`
    row(base, word, index, stride)   base + code · stride, for one of four codes without mask bits
    shared_address(array)            address of an array in shared memory, for `advance_…`
    repeated(count, value)           a function that returns a tuple of `count` equal words
    advance_…(array, addresses, stride, border, cells, best) → (cells, best)
                                     Compute one row of cells: every pair becomes its left neighbour (`border`
                                     for the first) plus its score from shared memory, at least 0. `best`
                                     holds running maxima. The scores are read with vector loads
                                     (`vector_loads` in layout.py): those of each width start at their own
                                     address, and loads of four words are `stride` bytes apart.
                                     halves, shorts: a word holds the scores of one pair.
                                     bytes: a word holds the scores of two pairs, and cells are 1 − M/2048
                                     (layout.py), so maxima are minima; every second pair is left out.
    score_…(cells, best)             the largest score of the running maxima; bytes: and of the pairs that are
                                     left out of them, in the last row
"""

from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.cuda import types
from numba.cuda.extending import intrinsic

from cuda.alignment.gapless.layout import vector_loads
from cuda.alignment.intrinsics import I32, Emit, constant, inline_ptx, word_intrinsic


def _emit_unmask(builder: Any, word: Any) -> Any:
    masked = builder.and_(word, constant(0x20202020))
    # 0x20 − 0x01 = 0x1F: all letter bits of the masked bytes, without a carry between bytes
    letters = builder.sub(masked, builder.lshr(masked, constant(5)))
    kept = builder.and_(word, builder.xor(letters, constant(0x1F1F1F1F)))
    return builder.or_(builder.and_(kept, constant(0x1F1F1F1F)), builder.and_(letters, constant(0x14141414)))


_shift_clamped = inline_ptx("shl.b32 $0, $1, $2;", 2)


def _emit_cut(builder: Any, word: Any, count: Any, fill: Any) -> Any:
    below = builder.icmp_signed("<", count, constant(0))
    bits = builder.shl(builder.select(below, constant(0), count), constant(3))
    # PTX shifts by 32 or more give 0; LLVM's are undefined
    replaced = _shift_clamped(builder, constant(-1), bits)
    return builder.or_(builder.and_(word, builder.xor(replaced, constant(-1))), builder.and_(fill, replaced))


def _emit_row(builder: Any, base: Any, word: Any, index: Any, stride: Any) -> Any:
    # one instruction extracts the byte, another multiplies and adds
    text = "{ .reg .b32 c; prmt.b32 c, $2, 0, $3; mad.lo.s32 $0, c, $4, $1; }"
    selector = builder.add(index, constant(0x4440))
    return inline_ptx(text, 4)(builder, base, word, selector, stride)


def _shared_address(typingctx, array):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
        generic = builder.ptrtoint(data, ir.IntType(64))
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        convert = ir.InlineAsm(kind, "cvta.to.shared.u64 $0, $1;", "=l,l")
        return builder.trunc(builder.call(convert, [generic]), I32)

    return types.int32(array), codegen


def _emit_load(builder: Any, address: Any, count: int) -> list[Any]:
    """Load 1, 2 or 4 words of shared memory; the load is not moved across a barrier."""
    if count == 1:
        return [inline_ptx("ld.shared.b32 $0, [$1];", 1, has_side_effect=True)(builder, address)]
    words = ir.LiteralStructType([I32] * count)
    names = ", ".join(f"${k}" for k in range(count))
    text = f"ld.shared.v{count}.b32 {{{names}}}, [${count}];"
    constraints = "=r," * count + "r"
    load = ir.InlineAsm(ir.FunctionType(words, [I32]), text, constraints, side_effect=True)
    loaded = builder.call(load, [address])
    return [builder.extract_value(loaded, k) for k in range(count)]


_largest_half = inline_ptx(
    """{
    .reg .b16 a, b, c; .reg .s32 n;
    mov.b32 {a, b}, $1;
    max.f16 c, a, b;
    cvt.rzi.s32.f16 $0, c;
}""",
    1,
)
_largest_short = inline_ptx(
    """{
    .reg .s16 a, b, c;
    mov.b32 {a, b}, $1;
    max.s16 c, a, b;
    cvt.s32.s16 $0, c;
}""",
    1,
)
_largest_bound = inline_ptx(
    """{
    .reg .s16 a, b, c; .reg .s32 n;
    mov.b32 {a, b}, $1;
    min.s16 c, a, b;
    cvt.s32.s16 n, c;
    sub.s32 $0, 0x3C00, n;
}""",
    1,
)
_add_shorts = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"


def _emit_add_halves(builder: Any, a: Any, b: Any) -> Any:
    one = constant(0x3C003C00)
    return inline_ptx("fma.rn.relu.f16x2 $0, $1, $2, $3;", 3)(builder, b, one, a)


def _emit_add_shorts(builder: Any, a: Any, b: Any) -> Any:
    return inline_ptx(_add_shorts, 3)(builder, a, b, constant(0))


_add_bytes = "fma.rn.sat.f16x2 $0, $1, $2, $3;"


def _emit_add_bytes(builder: Any, a: Any, b: Any) -> Any:
    return inline_ptx(_add_bytes, 3)(builder, b, constant(0x3C003C00), a)


def _one_pair(builder: Any, word: Any) -> list[Any]:
    return [word]


def _two_pairs(builder: Any, word: Any) -> list[Any]:
    return [builder.shl(word, constant(8)), word]


_greater_halves = inline_ptx("max.f16x2 $0, $1, $2;", 2)
_greater_shorts = inline_ptx("max.s16x2 $0, $1, $2;", 2)
_lesser_halves = inline_ptx("min.f16x2 $0, $1, $2;", 2)
_lesser_shorts = inline_ptx("min.s16x2 $0, $1, $2;", 2)


def _advance(add: Emit, better: Emit, pairs_of: Emit = _one_pair, byte_entries: bool = False) -> Any:
    def typing(typingctx, array, addresses, stride, border, cells, best):  # type: ignore[no-untyped-def]
        word = types.int32
        result = types.Tuple((cells, best))

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, addresses, stride, border, packed, chains = arguments
            values = [builder.extract_value(packed, k) for k in range(cells.count)]
            largest = [builder.extract_value(chains, k) for k in range(best.count)]
            k = cells.count
            for load in reversed(vector_loads(cells.count // (2 if byte_entries else 1))):
                start = builder.extract_value(addresses, load.width_index)
                address = builder.add(start, builder.mul(stride, constant(load.repeat)))
                for scores in reversed(_emit_load(builder, address, load.words)):
                    for score in reversed(pairs_of(builder, scores)):
                        k -= 1
                        values[k] = add(builder, values[k - 1] if k else border, score)
            for k, value in enumerate(values[1::2] if byte_entries else values):
                chain = k // 2 % best.count
                largest[chain] = better(builder, largest[chain], value)
            parts = [context.make_tuple(builder, cells, values), context.make_tuple(builder, best, largest)]
            return context.make_tuple(builder, result, parts)

        return result(array, addresses, word, word, cells, best), codegen

    return intrinsic(typing)


def _score(better: Emit, largest: Emit, byte_entries: bool = False) -> Any:
    def typing(typingctx, cells, best):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            words = [builder.extract_value(arguments[1], k) for k in range(best.count)]
            if byte_entries:
                words += [builder.extract_value(arguments[0], k) for k in range(0, cells.count, 2)]
            return largest(builder, reduce(partial(better, builder), words))

        return types.int32(cells, best), codegen

    return intrinsic(typing)


def repeated(count: int, value: int) -> Any:
    """Return a numba.cuda function without arguments that returns a tuple of `count` equal words."""
    result = types.UniTuple(types.int32, count)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, result, [constant(value)] * count)

    def typing(typingctx):  # type: ignore[no-untyped-def]
        return result(), codegen

    return intrinsic(typing)


advance_halves = _advance(_emit_add_halves, _greater_halves)
advance_halves_sm90 = _advance(_emit_add_halves, _greater_shorts)
advance_shorts_sm90 = _advance(_emit_add_shorts, _greater_shorts)
advance_bytes = _advance(_emit_add_bytes, _lesser_halves, _two_pairs, byte_entries=True)
advance_bytes_sm90 = _advance(_emit_add_bytes, _lesser_shorts, _two_pairs, byte_entries=True)
score_halves = _score(_greater_halves, _largest_half)
score_halves_sm90 = _score(_greater_shorts, _largest_half)
score_shorts_sm90 = _score(_greater_shorts, _largest_short)
score_bytes = _score(_lesser_halves, _largest_bound, byte_entries=True)
score_bytes_sm90 = _score(_lesser_shorts, _largest_bound, byte_entries=True)
unmask = word_intrinsic(_emit_unmask, 1)
cut = word_intrinsic(_emit_cut, 3)
row = word_intrinsic(_emit_row, 4)
shared_address = intrinsic(_shared_address)
