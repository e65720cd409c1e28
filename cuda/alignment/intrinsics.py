"""GPU instructions that numba has no name for, on 32-bit words and pairs of 16-bit numbers packed into them.

A pair is an int32 whose low half is its first number. Under numba's simulator (NUMBA_ENABLE_CUDASIM=1) each
name is a plain Python function that does the same, so that kernels run without a GPU. There, shuffles are
barriers of the whole block: blocks must be of one warp, all of whose threads make the same calls.

    unmask(word)                     four residue codes without their mask bits, masked ones as X
    cut(word, count, fill)           all bytes but the first `count` (any number) replaced by those of `fill`
    row(base, word, which, stride)   base + code · stride, for one of four codes without mask bits
    permute(a, b, selector)          PRMT: four of eight bytes, or their signs
    shared_address(array)            where an array in shared memory lies, for `advance_…`
    repeated(count, value)           makes a function that gives a tuple of so many equal words
    advance_…(array, places, stride, border, cells, best)
                                     a row of cells: every pair takes its left neighbour, the first one
                                     `border`, plus its score from shared memory, and no less than 0; (cells,
                                     running maxima). Scores are read in pieces (cuda/alignment/pieces.py), of
                                     each width from its place, those of four words `stride` bytes apart.
                                     halves and shorts: a word is the scores of a pair. bytes: it is those of
                                     two, cells are 1 − M/2048, so that maxima are minima, and every second
                                     pair is left out of them: see cuda/alignment/gapless/byte_table.py
    greater_…(a, b), largest_…(a)    of two pairs, number by number; of a pair's two numbers
    lesser_…(a, b), largest_bound(a) the same where cells are 1 − M/2048: the larger M
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
from cuda.alignment.pieces import pieces

_SIMULATED = bool(config.ENABLE_CUDASIM)


def _halves(*words: int) -> list[np.ndarray]:
    return [np.array([word], np.int64).astype(np.int32).view(np.float16) for word in words]


def _shorts(*words: int) -> list[np.ndarray]:
    return [np.array([word], np.int64).astype(np.int32).view(np.int16) for word in words]


def _simulated_greater_shorts(a: int, b: int) -> int:
    return _word(np.maximum(*_shorts(a, b)))


def _simulated_greater_halves(a: int, b: int) -> int:
    return _word(np.maximum(*_halves(a, b)))


def _simulated_lesser_shorts(a: int, b: int) -> int:
    return _word(np.minimum(*_shorts(a, b)))


def _simulated_lesser_halves(a: int, b: int) -> int:
    return _word(np.minimum(*_halves(a, b)))


def _simulated_largest_bound(a: int) -> int:
    return 0x3C00 - int(_shorts(a)[0].min())


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
    return int(base) + (int(word) >> 8 * which & 255) * stride


def _simulated_shared_address(array: Any) -> int:
    return 0


Pairs = tuple[int, ...]


def _simulated_words(array: Any, places: Pairs, stride: int, count: int) -> np.ndarray:
    """int32 [count], the scores of a row."""
    parts = []
    for piece in pieces(count):
        first = (int(places[piece.place]) + piece.turn * stride) // 4
        parts.append(np.array([int(word) for word in array[first : first + piece.words]], np.int32))
    return np.concatenate(parts)


def _whole_sums(before: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return np.maximum(before + scores, before.dtype.type(0))


def _saturated_sums(before: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Rounded once, as a fused multiply-add is: a double holds every sum of two halves."""
    with np.errstate(over="ignore"):
        return np.clip(before.astype(np.float64) + scores, 0, 1).astype(np.float16)


def _simulated_advance(
    kind: type, compared: type, better: Any = np.maximum, of_bytes: bool = False
) -> Callable[..., Any]:
    add = _saturated_sums if of_bytes else _whole_sums

    def advance(
        array: Any, places: Pairs, stride: int, border: int, cells: Pairs, best: Pairs
    ) -> tuple[Pairs, Pairs]:
        words = _simulated_words(array, places, stride, len(cells) // (2 if of_bytes else 1))
        scores = np.stack([words << 8, words], 1).reshape(-1) if of_bytes else words
        before = np.array((border, *cells[:-1]), np.int64).astype(np.int32).view(kind)
        fresh = add(before, scores.view(kind)).view(np.int32)
        chains = np.array(best, np.int64).astype(np.int32)
        # chain k % n takes pairs 2 k and 2 k + 1 of those that count
        counted = fresh[1::2] if of_bytes else fresh
        for turn in range(0, len(counted), 2 * len(best)):
            for both in (0, 1):
                part = counted[turn + both : turn + 2 * len(best) : 2]
                kept = chains[: len(part)].view(compared)
                chains[: len(part)] = better(kept, part.copy().view(compared)).view(np.int32)
        return tuple(fresh.tolist()), tuple(chains.tolist())

    return advance


def _simulated_repeated(count: int, value: int) -> Callable[[], Pairs]:
    return lambda: (value,) * count


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
    lesser_halves = _simulated_lesser_halves
    lesser_shorts = _simulated_lesser_shorts
    repeated = _simulated_repeated
    advance_halves = _simulated_advance(np.float16, np.float16)
    advance_halves_sm90 = _simulated_advance(np.float16, np.int16)
    advance_shorts_sm90 = _simulated_advance(np.int16, np.int16)
    advance_bytes = _simulated_advance(np.float16, np.float16, np.minimum, of_bytes=True)
    advance_bytes_sm90 = _simulated_advance(np.float16, np.int16, np.minimum, of_bytes=True)
    largest_bound = _simulated_largest_bound
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
        # one instruction takes the byte, another the product and the sum
        text = "{ .reg .b32 c; prmt.b32 c, $2, 0, $3; mad.lo.s32 $0, c, $4, $1; }"
        selector = builder.add(which, _constant(0x4440))
        return _assembly(text, 4)(builder, base, word, selector, stride)

    def _shared_address(typingctx, array):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
            generic = builder.ptrtoint(data, ir.IntType(64))
            kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
            convert = ir.InlineAsm(kind, "cvta.to.shared.u64 $0, $1;", "=l,l")
            return builder.trunc(builder.call(convert, [generic]), _I32)

        return types.int32(array), codegen

    def _emit_load(builder: Any, address: Any, count: int) -> list[Any]:
        """1, 2 or 4 words of shared memory; not to be moved over a barrier."""
        if count == 1:
            return [_assembly("ld.shared.b32 $0, [$1];", 1, ordered=True)(builder, address)]
        words = ir.LiteralStructType([_I32] * count)
        names = ", ".join(f"${k}" for k in range(count))
        text = f"ld.shared.v{count}.b32 {{{names}}}, [${count}];"
        constraints = "=r," * count + "r"
        load = ir.InlineAsm(ir.FunctionType(words, [_I32]), text, constraints, side_effect=True)
        loaded = builder.call(load, [address])
        return [builder.extract_value(loaded, k) for k in range(count)]

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
    _largest_bound = """{
        .reg .s16 a, b, c; .reg .s32 n;
        mov.b32 {a, b}, $1;
        min.s16 c, a, b;
        cvt.s32.s16 n, c;
        sub.s32 $0, 0x3C00, n;
    }"""
    _add_shorts = "{ .reg .b32 t; add.s16x2 t, $1, $2; max.s16x2 $0, t, $3; }"

    def _emit_add_halves(builder: Any, a: Any, b: Any) -> Any:
        one = _constant(0x3C003C00)
        return _assembly("fma.rn.relu.f16x2 $0, $1, $2, $3;", 3)(builder, b, one, a)

    def _emit_add_shorts(builder: Any, a: Any, b: Any) -> Any:
        return _assembly(_add_shorts, 3)(builder, a, b, _constant(0))

    _add_bytes = "fma.rn.sat.f16x2 $0, $1, $2, $3;"

    def _emit_add_bytes(builder: Any, a: Any, b: Any) -> Any:
        return _assembly(_add_bytes, 3)(builder, b, _constant(0x3C003C00), a)

    def _one_pair(builder: Any, word: Any) -> list[Any]:
        return [word]

    def _two_pairs(builder: Any, word: Any) -> list[Any]:
        return [builder.shl(word, _constant(8)), word]

    _greater_halves = _assembly("max.f16x2 $0, $1, $2;", 2)
    _greater_shorts = _assembly("max.s16x2 $0, $1, $2;", 2)
    _lesser_halves = _assembly("min.f16x2 $0, $1, $2;", 2)
    _lesser_shorts = _assembly("min.s16x2 $0, $1, $2;", 2)

    def _advance(add: _Emit, better: _Emit, pairs_of: _Emit = _one_pair, of_bytes: bool = False) -> Any:
        def typing(typingctx, array, places, stride, border, cells, best):  # type: ignore[no-untyped-def]
            word = types.int32
            result = types.Tuple((cells, best))

            def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                _, places, stride, border, packed, chains = arguments
                values = [builder.extract_value(packed, k) for k in range(cells.count)]
                largest = [builder.extract_value(chains, k) for k in range(best.count)]
                k = cells.count
                for piece in reversed(pieces(cells.count // (2 if of_bytes else 1))):
                    place = builder.extract_value(places, piece.place)
                    address = builder.add(place, builder.mul(stride, _constant(piece.turn)))
                    for scores in reversed(_emit_load(builder, address, piece.words)):
                        for score in reversed(pairs_of(builder, scores)):
                            k -= 1
                            values[k] = add(builder, values[k - 1] if k else border, score)
                for k, value in enumerate(values[1::2] if of_bytes else values):
                    chain = k // 2 % best.count
                    largest[chain] = better(builder, largest[chain], value)
                parts = [
                    context.make_tuple(builder, cells, values),
                    context.make_tuple(builder, best, largest),
                ]
                return context.make_tuple(builder, result, parts)

            return result(array, places, word, word, cells, best), codegen

        return intrinsic(typing)

    def repeated(count: int, value: int) -> Any:
        """A function of numba.cuda without arguments that gives a tuple of so many equal words."""
        result = types.UniTuple(types.int32, count)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.make_tuple(builder, result, [_constant(value)] * count)

        def typing(typingctx):  # type: ignore[no-untyped-def]
            return result(), codegen

        return intrinsic(typing)

    greater_halves = _words(_greater_halves, 2)
    greater_shorts = _words(_greater_shorts, 2)
    lesser_halves = _words(_lesser_halves, 2)
    lesser_shorts = _words(_lesser_shorts, 2)
    advance_halves = _advance(_emit_add_halves, _greater_halves)
    advance_halves_sm90 = _advance(_emit_add_halves, _greater_shorts)
    advance_shorts_sm90 = _advance(_emit_add_shorts, _greater_shorts)
    advance_bytes = _advance(_emit_add_bytes, _lesser_halves, _two_pairs, of_bytes=True)
    advance_bytes_sm90 = _advance(_emit_add_bytes, _lesser_shorts, _two_pairs, of_bytes=True)
    largest_bound = _words(_assembly(_largest_bound, 1), 1)
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
