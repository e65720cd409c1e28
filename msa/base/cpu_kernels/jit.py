"""The decorator of CPU kernels: compiled on their first call, without the GIL, and cached on disk.

Modules with kernels do not import numba, which takes half a second, until a kernel is called.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.RLock()


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Return a function that numba compiles on its first call; kernels may call each other.

    numba stores the machine code in `NUMBA_CACHE_DIR`, which the command line sets to a folder in foldcli's
    cache, else in `__pycache__` next to the source, else in the user's cache folder. If none is writable (as
    in a read-only container without a home folder), the kernel is compiled in every process.

    Args:
        function: a function that numba can compile.
        options: further ones of numba's `njit`.
    """
    return _Kernel(function, options)


class _Kernel:
    """A function and, once it was called, its compiled form."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        try:
            return (self._compiled or self.compiled())(*arguments)
        except OSError as error:
            # the machine code cannot be stored, as on a full disk
            if error.filename is None:
                error.filename = self.compiled().stats.cache_path
            raise

    def compiled(self) -> Any:
        """Return numba's function, made when it is first needed."""
        with _lock:
            if self._compiled is None:
                njit = _prepare_numba()
                try:
                    self._compiled = njit(nogil=True, cache=True, **self._options)(self._function)
                except RuntimeError:  # no folder of the cache is writable
                    self._compiled = njit(nogil=True, **self._options)(self._function)
        return self._compiled


@functools.cache
def _prepare_numba() -> Callable[..., Any]:
    """Import numba, let it call kernels within kernels, and return `numba.njit`."""
    from numba import extending, njit, types  # takes half a second

    extending.typeof_impl.register(_Kernel)(lambda called, _: types.Dispatcher(called.compiled()))
    decorator: Callable[..., Any] = njit
    return decorator
