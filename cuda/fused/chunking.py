"""How many rows of a tensor to work on at once, so that memory stays bounded for long proteins."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

# Elements of intermediates alive at once. On the CPU 8 MiB of float32 stay near the caches and no matrix
# product is small yet; elsewhere a launch must be worth its while.
CPU_BUDGET = 2**21
DEVICE_BUDGET = 2**26

_planned: ContextVar[int | None] = ContextVar("planned", default=None)


@contextmanager
def chunk_budget(elements: int | None) -> Iterator[None]:
    """While open, `row_slices` without a budget of its own takes this one; None changes nothing."""
    token = _planned.set(elements or _planned.get())
    try:
        yield
    finally:
        _planned.reset(token)


def planned_budget() -> int | None:
    """That of the `chunk_budget` open now."""
    return _planned.get()


def row_slices(x: torch.Tensor, elements_per_row: int, budget: int | None = None) -> Iterator[slice]:
    """Slices that cover the first axis of a tensor in order.

    Args:
        x: the tensor.
        elements_per_row: elements of intermediates that one row needs.
        budget: elements that may be alive at once; a slice has at least one row. Default: that of the
            `chunk_budget` open now, otherwise CPU_BUDGET or, on other devices, DEVICE_BUDGET.
    """
    budget = budget or _planned.get() or (CPU_BUDGET if x.device.type == "cpu" else DEVICE_BUDGET)
    size = max(1, budget // max(1, elements_per_row))
    for start in range(0, x.shape[0], size):
        yield slice(start, min(start + size, x.shape[0]))
