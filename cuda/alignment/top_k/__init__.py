"""Selection of a query's best targets by exact gapless score, on a GPU and without waiting for the host."""

from cuda.alignment.top_k.selector import GaplessQuery, TopKSelector, read_row, read_rows, row_size

__all__ = ["GaplessQuery", "TopKSelector", "read_row", "read_rows", "row_size"]
