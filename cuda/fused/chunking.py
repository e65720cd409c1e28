"""Chunks of rows, sized so that the memory of intermediates stays bounded for long proteins."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

# Maximum elements of intermediates held in memory at once. 2²¹ float32 elements (8 MiB) fit in a CPU's caches
# and keep matrix products large enough; on a GPU a chunk must be worth its launches.
CPU_BUDGET = 2**21
DEVICE_BUDGET = 2**26

# a context variable, since the budget applies to the operations of one pass and passes may run in threads
_planned: ContextVar[int | None] = ContextVar("planned", default=None)


@contextmanager
def chunk_budget(elements: int | None) -> Iterator[None]:
    """Set the budget of `row_slices` inside a `with` block; None keeps the current one."""
    token = _planned.set(elements or _planned.get())
    try:
        yield
    finally:
        _planned.reset(token)


planned_budget = _planned.get
"""Returns the budget of the enclosing `chunk_budget` block, or None outside of one."""


def row_slices(x: torch.Tensor, elements_per_row: int) -> Iterator[slice]:
    """Yield slices that cover the first axis of a tensor in order.

    A slice needs at most as many elements of intermediates as the enclosing `chunk_budget` block allows,
    otherwise CPU_BUDGET or, on other devices, DEVICE_BUDGET; but it has at least one row. One row needs
    `elements_per_row`.
    """
    budget = _planned.get() or (CPU_BUDGET if x.device.type == "cpu" else DEVICE_BUDGET)
    size = max(1, budget // max(1, elements_per_row))
    for start in range(0, x.shape[0], size):
        yield slice(start, min(start + size, x.shape[0]))


def residue_slices(x: torch.Tensor, elements_per_row: int, rows: slice) -> Iterator[tuple[slice, slice]]:
    """Yield the slices of `row_slices` of a tensor with some rows of the residues, and their residues."""
    first = rows.start or 0
    for chunk in row_slices(x, elements_per_row):
        yield chunk, slice(first + chunk.start, first + chunk.stop)
