"""The decorator that compiles the CPU kernels: no GIL, with an on-disk cache."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with numba on its first call, without the GIL and cached on disk.

    numba keeps the machine code in `__pycache__` next to the source or, if that is not writable, in the
    user's cache folder; `NUMBA_CACHE_DIR` overrides both. If neither is writable (a read-only container
    without a home), numba raises RuntimeError on decoration; the kernel is then compiled again in every
    process.
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)
