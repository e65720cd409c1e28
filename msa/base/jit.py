"""The decorator that compiles CPU kernels: they release the GIL and are cached on disk."""

from collections.abc import Callable
from typing import Any

import numba
from numba.np import linalg


def _refuse_blas() -> None:
    raise ImportError("kernels use no matrix products")


# with the first kernel, numba would import scipy.linalg, which takes 0.2 s
linalg.ensure_blas = _refuse_blas


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with numba on its first call, without the GIL and cached on disk.

    numba stores the machine code in `NUMBA_CACHE_DIR`, which the command line sets to a folder in foldcli's
    cache, else in `__pycache__` next to the source, else in the user's cache folder. If none is writable (as
    in a read-only container without a home folder), numba raises RuntimeError, and the kernel is compiled in
    every process instead.
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)
