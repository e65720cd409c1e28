"""How the CPU kernels are compiled: without the GIL, and kept between runs where there is a place for it."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with numba on first use: no GIL, machine code cached on disk.

    The code is kept in `__pycache__` beside the source; where that cannot be written, in the user's cache
    folder; `NUMBA_CACHE_DIR` overrides both. Where neither can be written (a read-only container without a
    home), numba raises RuntimeError on decoration; the kernel is then compiled anew in each process, which
    only costs time.
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)
