"""Launches of kernels that take less time than Triton's look at each of their arguments does."""

from typing import Any

from triton.compiler import CompiledKernel

_compiled: dict[tuple[Any, ...], CompiledKernel] = {}


def launch(
    kernel: Any, count: int, kind: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> None:
    """Launch programs of four warps; after the first launch of a kind, as that one was compiled.

    Args:
        kernel: its parameters are these arguments and then these constants, in this order.
        count: programs.
        kind: what else decides how the kernel is compiled, where launches differ in it: the device, and of an
            argument its type, whether it is None, and whether it is 1 or a multiple of 16, unless Triton is
            told not to specialise in that.
        arguments: tensors begin at multiples of 16 bytes, unless the kind says otherwise.
        constants: `constexpr` parameters.
    """
    key = (kernel, *kind, *constants.values())
    if (again := _compiled.get(key)) is not None:
        again[count, 1, 1](*arguments, *constants.values())
    elif (compiled := kernel[(count,)](*arguments, **constants, num_warps=4)) is not None:
        _compiled[key] = compiled
