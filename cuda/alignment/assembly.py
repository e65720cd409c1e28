"""How functions of 32-bit words are put into numba.cuda: from LLVM's instructions or from a line of PTX.

Under numba's simulator only what its stand-ins need is here: words as signed numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config


def signed(value: int) -> int:
    """The low 32 bits as a signed number."""
    return ((int(value) + 2**31) & 0xFFFF_FFFF) - 2**31


def as_word(pair: np.ndarray) -> int:
    """Four bytes as a signed number."""
    return int(np.ascontiguousarray(pair).view(np.int32)[0])


if not config.ENABLE_CUDASIM:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    I32 = ir.IntType(32)
    Emit = Callable[..., Any]

    def constant(value: int) -> Any:
        return ir.Constant(I32, value)

    def assembly(text: str, operands: int, ordered: bool = False) -> Emit:
        """Emit an instruction from words to a word; an ordered one stays where it stands."""

        def emit(builder: Any, *arguments: Any) -> Any:
            kind = ir.FunctionType(I32, [I32] * operands)
            constraints = ",".join(["=r"] + ["r"] * operands)
            return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=ordered), arguments)

        return emit

    def words(emit: Emit, operands: int) -> Any:
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
