"""How many rows of a batch to work on at once, so that memory stays bounded whatever the protein's length."""

from collections.abc import Iterator

# float32 elements of intermediates alive at once: 64 MiB, large enough that no matrix product is small
ELEMENT_BUDGET = 2**24


def row_slices(rows: int, elements_per_row: int, budget: int | None = None) -> Iterator[slice]:
    """Slices that cover `range(rows)` in order.

    Args:
        rows: number of rows.
        elements_per_row: elements of intermediates that one row needs.
        budget: elements that may be alive at once; a slice has at least one row. Default: ELEMENT_BUDGET.
    """
    size = max(1, (ELEMENT_BUDGET if budget is None else budget) // max(1, elements_per_row))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
