"""Selection of queries' best targets by exact gapless score, on a GPU and without waiting for the host."""

from cuda.alignment.top_k.layout import read_row, read_rows, row_size
from cuda.alignment.top_k.selector import GaplessBatch, SelectionStreams, TopKSelector, any_length

__all__ = [
    "GaplessBatch",
    "SelectionStreams",
    "TopKSelector",
    "any_length",
    "read_row",
    "read_rows",
    "row_size",
]
