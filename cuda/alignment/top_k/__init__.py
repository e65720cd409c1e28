"""The best targets of a query by exact gapless score, found on a GPU without waiting for the host.

`kernel` counts, lists and chooses, `targets` queues everything, `query` brings the scores.
"""

from cuda.alignment.top_k.query import QueryFilter
from cuda.alignment.top_k.targets import BestTargets, read_row, row_numbers

__all__ = ["BestTargets", "QueryFilter", "read_row", "row_numbers"]
