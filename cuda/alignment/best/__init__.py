"""The best targets of a query by exact gapless score, found on a GPU without waiting for the host.

`kernel` counts, lists and chooses, `targets` queues everything, `query` brings the scores.
"""

from cuda.alignment.best.query import QueryFilter
from cuda.alignment.best.targets import BestTargets, read_row, row_numbers

__all__ = ["BestTargets", "QueryFilter", "read_row", "row_numbers"]
