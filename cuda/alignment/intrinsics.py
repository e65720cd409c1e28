"""Intrinsics shared by all alignment kernels, and the helpers with which new ones are defined.

An intrinsic is a function on 32-bit words that emits LLVM instructions or one line of PTX.

    permute(a, b, selector)   PRMT: select four of eight bytes, or their sign
    shuffle_up(word)          the word of the previous lane
    shuffle_xor(word, mask)   the word of lane ^ mask
    shuffle_first(word)       the word of lane 0
"""

from collections.abc import Callable
from typing import Any

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
