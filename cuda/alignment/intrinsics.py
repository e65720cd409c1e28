"""GPU instructions that numba has no name for, on 32-bit words and pairs of 16-bit numbers packed into them.

A pair is an int32 whose low half is its first number. Under numba's simulator (NUMBA_ENABLE_CUDASIM=1) each
name is a plain Python function that does the same, so that kernels run without a GPU. There, shuffles are
barriers of the whole block: blocks must be of one warp, all of whose threads make the same calls.

    unmask(word)                     four residue codes without their mask bits, masked ones as X
    cut(word, count, fill)           all bytes but the first `count` (any number) replaced by those of `fill`
    row(base, word, which, stride)   base + code · stride, for one of the four codes
    permute(a, b, selector)          PRMT: four of eight bytes, or their signs
    shared_address(array)            where an array in shared memory lies, for `advance_…`
    zeros(count)                     makes a function that gives a tuple of zeros
    advance_…(array, address, stride, border, cells, best)
                                     a row of cells: every pair takes its left neighbour, the first one
                                     `border`, plus its score from shared memory, 16 bytes at a time, `stride`
                                     bytes apart, and no less than 0; (cells, running maxima)
    greater_…(a, b), largest_…(a)    of two pairs, number by number; of a pair's two numbers
    shuffle_up, shuffle_xor, shuffle_first
                                     a word from the lane before, from lane ^ mask, from lane 0
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config

from cuda.alignment.assembly import as_word as _word
from cuda.alignment.assembly import signed as _signed

_SIMULATED = bool(config.ENABLE_CUDASIM)


def _halves(*words: int) -> list[np.ndarray]:
    return [np.array([word], np.int64).astype(np.int32).view(np.float16) for word in words]


def _shorts(*words: int) -> list[np.ndarray]:
    return [np.array([word], np.int64).astype(np.int32).view(np.int16) for word in words]


def _simulated_greater_shorts(a: int, b: int) -> int:
    return _word(np.maximum(*_shorts(a, b)))


def _simulated_greater_halves(a: int, b: int) -> int:
    return _word(np.maximum(*_halves(a, b)))


def _simulated_largest_half(a: int) -> int:
    return int(_halves(a)[0].max())


def _simulated_largest_short(a: int) -> int:
    return int(_shorts(a)[0].max())


def _simulated_permute(a: int, b: int, selector: int) -> int:
    pool = np.array([a, b], np.int64).astype(np.int32).view(np.uint8)
    chosen = []
    for place in range(4):
        nibble = selector >> (4 * place) & 0xF
        byte = int(pool[nibble & 7])
        chosen.append((255 if byte & 0x80 else 0) if nibble & 8 else byte)
    return _word(np.array(chosen, np.uint8))


def _simulated_unmask(word: int) -> int:
    codes = np.array([word], np.int64).astype(np.int32).view(np.uint8)
    return _word(np.where(codes & 32, 20, codes).astype(np.uint8))


def _simulated_cut(word: int, count: int, fill: int) -> int:
    keep = (1 << 8 * min(max(int(count), 0), 4)) - 1
    return _signed((int(word) & keep) | (int(fill) & ~keep))


def _simulated_row(base: int, word: int, which: int, stride: int) -> int:
    return int(base) + (int(word) >> 8 * which & 31) * stride


def _simulated_shared_address(array: Any) -> int:
    return 0


def _simulated_load4(array: Any, address: int, offset: int) -> tuple[int, ...]:
    first = (int(address) + offset) // 4
    return tuple(int(word) for word in array[first : first + 4])


Pairs = tuple[int, ...]


def _simulated_advance(kind: type, compared: type) -> Callable[..., Any]:
    def advance(
        array: Any, address: int, stride: int, border: int, cells: Pairs, best: Pairs
    ) -> tuple[Pairs, Pairs]:
        words = np.lib.stride_tricks.sliding_window_view(array, 4)[int(address) // 4 :: stride // 4]
        scores = np.ascontiguousarray(words[: len(cells) // 4]).reshape(-1).view(kind)
        before = np.array((border, *cells[:-1]), np.int64).astype(np.int32).view(kind)
        fresh = np.maximum(before + scores, kind(0)).view(np.int32)
        chains = np.array(best, np.int64).astype(np.int32)
        # chain k % n takes pairs 2 k and 2 k + 1
        for turn in range(0, len(fresh), 2 * len(best)):
            for both in (0, 1):
                part = fresh[turn + both : turn + 2 * len(best) : 2]
                kept = chains[: len(part)].view(compared)
                chains[: len(part)] = np.maximum(kept, part.copy().view(compared)).view(np.int32)
        return tuple(fresh.tolist()), tuple(chains.tolist())

    return advance


def _simulated_zeros(count: int) -> Callable[[], Pairs]:
    return lambda: (0,) * count


_exchanged: dict[int, int] = {}


def _exchange(value: int, source: Callable[[int], int]) -> int:
    """Every thread of the block puts down a value and takes up that of thread `source(its own number)`."""
    thread: Any = threading.current_thread()
    own = thread.threadIdx.x
    _exchanged[own] = int(value)
    thread.syncthreads()
    taken = _exchanged[source(own)]
    thread.syncthreads()
    return taken


def _simulated_shuffle_up(value: int) -> int:
    return _exchange(value, lambda own: max(own - 1, 0))


def _simulated_shuffle_xor(value: int, mask: int) -> int:
    return _exchange(value, lambda own: own ^ mask)


def _simulated_shuffle_first(value: int) -> int:
    return _exchange(value, lambda own: 0)


if _SIMULATED:
    greater_halves = _simulated_greater_halves
    greater_shorts = _simulated_greater_shorts
    zeros = _simulated_zeros
    advance_halves = _simulated_advance(np.float16, np.float16)
    advance_halves_sm90 = _simulated_advance(np.float16, np.int16)
    advance_shorts_sm90 = _simulated_advance(np.int16, np.int16)
    largest_half = _simulated_largest_half
    largest_short = _simulated_largest_short
    permute = _simulated_permute
    unmask = _simulated_unmask
    cut = _simulated_cut
    row = _simulated_row
    shared_address = _simulated_shared_address
    shuffle_up = _simulated_shuffle_up
    shuffle_xor = _simulated_shuffle_xor
    shuffle_first = _simulated_shuffle_first
else:
    from llvmlite import ir
    from numba.core import cgutils
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from cuda.alignment.assembly import I32 as _I32
    from cuda.alignment.assembly import Emit as _Emit
    from cuda.alignment.assembly import assembly as _assembly
    from cuda.alignment.assembly import constant as _constant
    from cuda.alignment.assembly import words as _words

    def _emit_unmask(builder: Any, word: Any) -> Any:
        masked = builder.and_(word, _constant(0x20202020))
        # 0x20 − 0x01 = 0x1F: all letter bits of the masked bytes, and nothing carried between bytes
        letters = builder.sub(masked, builder.lshr(masked, _constant(5)))
        kept = builder.and_(word, builder.xor(letters, _constant(0x1F1F1F1F)))
        return builder.or_(
            builder.and_(kept, _constant(0x1F1F1F1F)), builder.and_(letters, _constant(0x14141414))
        )

    _shift_clamped = _assembly("shl.b32 $0, $1, $2;", 2)

    def _emit_cut(builder: Any, word: Any, count: Any, fill: Any) -> Any:
        below = builder.icmp_signed("<", count, _constant(0))
        bits = builder.shl(builder.select(below, _constant(0), count), _constant(3))
        # PTX shifts by 32 and more give 0, LLVM's are undefined
        fresh = _shift_clamped(builder, _constant(-1), bits)
        return builder.or_(builder.and_(word, builder.xor(fresh, _constant(-1))), builder.and_(fill, fresh))

    def _emit_row(builder: Any, base: Any, word: Any, which: Any, stride: Any) -> Any:
        code = builder.and_(builder.lshr(word, builder.mul(which, _constant(8))), _constant(31))
        return builder.add(base, builder.mul(code, stride))

    def _shared_address(typingctx, array):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
            generic = builder.ptrtoint(data, ir.IntType(64))
            kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
            convert = ir.InlineAsm(kind, "cvta.to.shared.u64 $0, $1;", "=l,l")
            return builder.trunc(builder.call(convert, [generic]), _I32)

        return types.int32(array), codegen

    def _emit_load4(builder: Any, address: Any) -> list[Any]:
        words = ir.LiteralStructType([_I32] * 4)
        text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];"
        # not to be moved over a barrier
        load = ir.InlineAsm(ir.FunctionType(words, [_I32]), text, "=r,=r,=r,=r,r", side_effect=True)
        loaded = builder.call(load, [address])
        return [builder.extract_value(loaded, k) for k in range(4)]

    _largest_half = """{
        .reg .b16 a, b, c; .reg .s32 n;
        mov.b32 {a, b}, $1;
        max.f16 c, a, b;
        cvt.rzi.s32.f16 $0, c;
    }"""
    _largest_short = """{
        .reg .s16 a, b, c;
        mov.b32 {a, b}, $1;
        max.s16 c, a, b;
        cvt.s32.s16 $0, c;
    }"""
    _add_shorts = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"

    def _emit_add_halves(builder: Any, a: Any, b: Any) -> Any:
        one = _constant(0x3C003C00)
        return _assembly("fma.rn.relu.f16x2 $0, $1, $2, $3;", 3)(builder, b, one, a)

    def _emit_add_shorts(builder: Any, a: Any, b: Any) -> Any:
        return _assembly(_add_shorts, 3)(builder, a, b, _constant(0))

    _greater_halves = _assembly("max.f16x2 $0, $1, $2;", 2)
    _greater_shorts = _assembly("max.s16x2 $0, $1, $2;", 2)

    def _advance(add: _Emit, greater: _Emit) -> Any:
        def typing(typingctx, array, address, stride, border, cells, best):  # type: ignore[no-untyped-def]
            word = types.int32
            result = types.Tuple((cells, best))

            def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                _, address, stride, border, packed, chains = arguments
                values = [builder.extract_value(packed, k) for k in range(cells.count)]
                largest = [builder.extract_value(chains, k) for k in range(best.count)]
                for chunk in reversed(range(cells.count // 4)):
                    offset = builder.mul(stride, _constant(chunk))
                    scores = _emit_load4(builder, builder.add(address, offset))
                    for k in reversed(range(4 * chunk, 4 * chunk + 4)):
                        before = values[k - 1] if k else border
                        values[k] = add(builder, before, scores[k % 4])
                for k, value in enumerate(values):
                    chain = k // 2 % best.count
                    largest[chain] = greater(builder, largest[chain], value)
                parts = [
                    context.make_tuple(builder, cells, values),
                    context.make_tuple(builder, best, largest),
                ]
                return context.make_tuple(builder, result, parts)

            return result(array, word, word, word, cells, best), codegen

        return intrinsic(typing)

    def zeros(count: int) -> Any:
        """A function of numba.cuda without arguments that gives so many zeros, a tuple."""
        result = types.UniTuple(types.int32, count)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.make_tuple(builder, result, [_constant(0)] * count)

        def typing(typingctx):  # type: ignore[no-untyped-def]
            return result(), codegen

        return intrinsic(typing)

    greater_halves = _words(_greater_halves, 2)
    greater_shorts = _words(_greater_shorts, 2)
    advance_halves = _advance(_emit_add_halves, _greater_halves)
    advance_halves_sm90 = _advance(_emit_add_halves, _greater_shorts)
    advance_shorts_sm90 = _advance(_emit_add_shorts, _greater_shorts)
    largest_half = _words(_assembly(_largest_half, 1), 1)
    largest_short = _words(_assembly(_largest_short, 1), 1)
    permute = _words(_assembly("prmt.b32 $0, $1, $2, $3;", 3), 3)
    unmask = _words(_emit_unmask, 1)
    cut = _words(_emit_cut, 3)
    row = _words(_emit_row, 4)
    shared_address = intrinsic(_shared_address)
    shuffle_up = _words(_assembly("shfl.sync.up.b32 $0, $1, 1, 0, 0xffffffff;", 1, ordered=True), 1)
    shuffle_xor = _words(_assembly("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", 2, ordered=True), 2)
    shuffle_first = _words(_assembly("shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", 1, ordered=True), 1)
