"""Lists of targets whose exact scores are to be computed, one list for each query of a batch.

A list grows in steps: targets are appended and cut into stretches (`list_bounds` in top_k), and then scored
(`ListScorer`), before more are appended. Several groups of lanes can share a long target, because an ungapped
alignment is no longer than the query: a group that starts one query length before its stretch sees every
alignment that ends in the stretch completely.
"""

from dataclasses import dataclass
from typing import Any

LOWER, UPPER, FINISHED, LISTED, SCORED, STRETCHES, TAKEN, WARPS = range(8)
"""Columns of `TargetLists.state`, zero at first:

    LOWER, UPPER   targets with LOWER ≤ bound < UPPER are to be listed
    FINISHED       blocks of a kernel that have finished
    LISTED         number of listed targets
    SCORED         number of those whose scores are known, the first ones of the list
    STRETCHES      number of stretches of the others
    TAKEN, WARPS   stretches taken and warps that have finished in `ListScorer`; zero between calls
"""

STATE_SIZE = 8

MEMBER_SIZE = 4
"""Numbers that describe each query of `rescore_listed`."""


@dataclass(frozen=True)
class TargetLists:
    """The lists of a batch of queries, in the memory of a GPU; row q is that of query q.

    Args:
        targets: device int32 [queries, n], indices of targets, distinct and in any order.
        scores: device int32 [queries, n], exact scores, 0 before they are known.
        ends: device int32 [queries, n], for each unscored target, the number of stretches of the unscored
            targets up to this one.
        state: device int32 [queries, STATE_SIZE].
    """

    targets: Any
    scores: Any
    ends: Any
    state: Any
