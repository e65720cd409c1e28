"""Changes of Triton's interpreter: a correction, and less time per call.

Imported only by processes with TRITON_INTERPRET=1.
"""

import functools
from dataclasses import replace
from typing import Any

from triton import language as tl
from triton.language import core
from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_and_index(tensor: Any, scope: Any) -> None:
    """Patch Triton's tensors as the interpreter does, and make its scalars usable as integers.

    They are arrays of one element, which `int()` of recent numpy versions rejects.
    """
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


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
    # offsets of the tests' small tensors do not overflow
    options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
