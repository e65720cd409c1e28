"""Changes of Triton's interpreter: corrections, and less time per call.

Imported only by processes with TRITON_INTERPRET=1.
"""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton import language as tl
from triton.language import core
from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor
_convert_float = interpreter._convert_float
_create_dot = interpreter.InterpreterBuilder.create_dot


def _convert_and_round(values: NDArray[Any], source: tl.dtype, target: tl.dtype, mode: Any) -> NDArray[Any]:
    """Convert numbers as the interpreter does, but round float32 to the nearest bfloat16, to even if tied.

    The interpreter truncates, which doubles errors and biases sums. It has bfloat16 in arrays of uint16.
    """
    if (source, target) == (tl.bfloat16, tl.float32):
        return values.astype(np.uint32) << 16
    if (source, target) != (tl.float32, tl.bfloat16):
        result: NDArray[Any] = _convert_float(values, source, target, mode)
        return result
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _dot(builder: Any, a: Any, b: Any, *arguments: Any) -> Any:
    """Multiply as the interpreter does, but not the bits of bfloat16 as if they were integers."""
    a, b = (builder.create_fp_ext(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
    return _create_dot(builder, a, b, *arguments)


def _patch_tensor_and_index(tensor: Any, scope: Any) -> None:
    """Patch Triton's tensors as the interpreter does, and make its scalars usable as integers.

    They are arrays of one element, which `int()` of recent numpy versions rejects.
    """
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _bfloat16_constant(builder: Any, value: float) -> Any:
    """Return a constant of bfloat16, which the interpreter does not make."""
    return builder.create_fp_trunc(builder.get_fp32(value), tl.bfloat16)


@functools.cache
def _builtin_names(package: Any) -> tuple[str, ...]:
    """Return the names of a module's or class's built-in functions, which must not be patched yet."""
    return tuple(name for name in dir(package) if core.is_builtin(getattr(package, name)))


def _patch_builtin(package: Any, builder: Any, scope: Any) -> None:
    """Patch the built-in functions as the interpreter does, but list all members once per process."""
    for name in _builtin_names(package):
        member = getattr(package, name)
        # in a function that another kernel calls, they are patched already
        if core.is_builtin(member):
            interpreter._patch_attr(package, name, member, builder, scope)


def install() -> None:
    """Change the interpreter of this process."""
    for package in (tl, core, tl.tensor, tl.math, core.tensor_descriptor_base):
        _builtin_names(package)
    interpreter._patch_lang_tensor = _patch_tensor_and_index
    interpreter._patch_builtin = _patch_builtin
    interpreter._convert_float = _convert_and_round
    interpreter.InterpreterBuilder.create_dot = _dot
    interpreter.InterpreterBuilder.get_bf16 = _bfloat16_constant
    # offsets of the tests' small tensors do not overflow
    options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
