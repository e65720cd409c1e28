"""Types of progress callbacks."""

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""A callback (done, total); the total is None while it is unknown."""

CompileProgress = Callable[[int, int], None]
"""A callback (kernels compiled so far, kernels known to be needed)."""
