"""Intrinsics shared by all alignment kernels, and the helpers with which new ones are defined.

An intrinsic is a function on 32-bit words that emits LLVM instructions or one line of PTX. Under numba's
simulator each intrinsic is a Python function with the same result, so that kernels run without a GPU. In the
simulator, a shuffle is a barrier of the whole block, so a block must be one warp whose threads all make the
same calls.

    permute(a, b, selector)   PRMT: select four of eight bytes, or their sign
    shuffle_up(word)          the word of the previous lane
    shuffle_xor(word, mask)   the word of lane ^ mask
    shuffle_first(word)       the word of lane 0
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cuda.alignment.device import SIMULATED


def to_signed(value: int) -> int:
    """Return the low 32 bits of a number as a signed number."""
    return ((int(value) + 2**31) & 0xFFFF_FFFF) - 2**31


def to_word(values: np.ndarray) -> int:
    """Return four bytes of an array as a signed 32-bit number."""
    return int(np.ascontiguousarray(values).view(np.int32)[0])


def _simulated_permute(a: int, b: int, selector: int) -> int:
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


def _simulated_shuffle_up(value: int) -> int:
    return _exchange(value, lambda own: max(own - 1, 0))


def _simulated_shuffle_xor(value: int, mask: int) -> int:
    return _exchange(value, lambda own: own ^ mask)


def _simulated_shuffle_first(value: int) -> int:
    return _exchange(value, lambda own: 0)


if SIMULATED:
    permute: Any = _simulated_permute
    shuffle_up: Any = _simulated_shuffle_up
    shuffle_xor: Any = _simulated_shuffle_xor
    shuffle_first: Any = _simulated_shuffle_first
else:
    # the simulator has neither LLVM types nor extensions
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    I32 = ir.IntType(32)
    Emit = Callable[..., Any]
    """(builder, *words) → word; emits instructions."""

    def constant(value: int) -> Any:
        """Return an LLVM constant of 32 bits."""
        return ir.Constant(I32, value)

    def inline_ptx(text: str, operands: int, has_side_effect: bool = False) -> Emit:
        """Return an emitter of inline PTX; with a side effect, the compiler does not move it."""

        def emit(builder: Any, *arguments: Any) -> Any:
            kind = ir.FunctionType(I32, [I32] * operands)
            constraints = ",".join(["=r"] + ["r"] * operands)
            return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=has_side_effect), arguments)

        return emit

    def word_intrinsic(emit: Emit, operands: int) -> Any:
        """Return a numba.cuda function from 1 to 4 int32 arguments to int32."""
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

    def _shuffle(text: str, operands: int) -> Any:
        return word_intrinsic(inline_ptx(text, operands, has_side_effect=True), operands)

    emit_permute = inline_ptx("prmt.b32 $0, $1, $2, $3;", 3)
    permute = word_intrinsic(emit_permute, 3)
    shuffle_up = _shuffle("shfl.sync.up.b32 $0, $1, 1, 0, 0xffffffff;", 1)
    shuffle_xor = _shuffle("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", 2)
    shuffle_first = _shuffle("shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", 1)
