"""The settings of the filter that thins out alignments."""

import math
from dataclasses import dataclass
from itertools import pairwise

from msa.base.errors import InputError, check_range

_MAX_ROWS = 2**31 - 1
_RANGES = {
    "max_seq_id": (0, 1),
    "qid": (0, 1),
    "qsc": (-math.inf, math.inf),
    "cov": (0, 1),
    "diff": (0, _MAX_ROWS),
    "filter_min_enable": (0, _MAX_ROWS),
}


@dataclass(frozen=True)
class AlignmentFilter:
    """The criteria for rows of an alignment; by default, all rows are kept.

    Args:
        max_seq_id: largest identity of two rows, as a fraction of the columns in which both have a residue;
            of two rows above it, the one with fewer residues is removed.
        qid: smallest identity with the query, as a fraction of the row's residues.
        qsc: smallest score with the query, bits per residue; None for no limit.
        cov: smallest fraction of the query's columns in which the row has a residue.
        diff: keep only the most diverse rows, at least this many around every column; 0 to keep all.
        identity_buckets: ascending limits of identity with the query, as fractions; `max_seq_id` and `diff`
            apply separately to the rows up to the first limit, above it up to the second, and so on.
        filter_min_enable: alignments with up to this many rows, the query included, are not filtered.

    Raises:
        InputError: a number is out of range, or the limits do not ascend.
    """

    max_seq_id: float = 1.0
    qid: float = 0.0
    qsc: float | None = None
    cov: float = 0.0
    diff: int = 0
    identity_buckets: tuple[float, ...] = ()
    filter_min_enable: int = 0

    def __post_init__(self) -> None:
        for name, bounds in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                check_range(name, value, bounds)
        limits = (self.qid, *self.identity_buckets)
        for limit in limits:
            check_range("qid", limit, (0, 1))
        if any(low >= high for low, high in pairwise(limits)):
            raise InputError(f"qid is {','.join(map(str, limits))}: expected ascending numbers")

    @property
    def active(self) -> bool:
        """True if the criteria can remove rows."""
        unlimited = AlignmentFilter(
            identity_buckets=self.identity_buckets, filter_min_enable=self.filter_min_enable
        )
        return self != unlimited


FOLDING_FILTER = AlignmentFilter(
    max_seq_id=0.95, diff=3000, identity_buckets=(0.2, 0.4, 0.6, 0.8, 1.0), filter_min_enable=1000
)
"""Default of alignments to fold, as in ColabFold's `colabfold_search` (colabfold/mmseqs/search.py)."""
