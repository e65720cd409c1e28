"""The choice between kernels that numba compiles and slower code that does not need numba.

Importing numba and loading the kernels takes as long as the slower code for a few hundred queries. E-values
are equal in every bit, and so are profiles and Forward scores, which are rounded.
"""

import contextlib
import threading
from collections.abc import Callable

_MAX_VALUES = 1_000_000
"""Number of values that a process computes without numba, which takes about as long as importing numba."""


class InterpretedBudget:
    """The budget of values that this process computes without numba, unless it has loaded the kernels."""

    def __init__(self) -> None:
        self._count = 0
        self._loading: threading.Thread | None = None
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Count further values, and return whether they should be computed without numba."""
        if self._loading is not None:
            if count > _MAX_VALUES:
                # more values take longer than waiting for the kernels
                self._loading.join()
            return self._loading.is_alive()
        self._count += count
        return self._count <= _MAX_VALUES

    @property
    def is_mostly_used(self) -> bool:
        """True if few further values will be computed without numba."""
        return self._count > _MAX_VALUES // 2

    def load_in_background(self, load: Callable[[], None]) -> None:
        """Load the kernels in a thread, once; they are used as soon as this is done.

        Errors are ignored here; the first use reports them.

        Args:
            load: imports and calls the kernels.
        """

        def load_ignoring_errors() -> None:
            with contextlib.suppress(Exception):
                load()

        with self._lock:
            if self._loading is None:
                thread = threading.Thread(target=load_ignoring_errors, name="kernels", daemon=True)
                # a thread that has not started is not alive
                thread.start()
                self._loading = thread


budget = InterpretedBudget()
"""The budget of this process."""
