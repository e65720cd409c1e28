"""Search of a clustered database: search the representatives, then the cluster members of the hits.

If a representative is a hit, all members of its cluster are aligned to the query, so that each has its own
score, E-value and path. A member can only be found through its representative.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.search.engine import Candidates, Engine, EngineRequest, QueryProfile


class ClusterExpandingEngine:
    """An engine for clustered databases that wraps another engine.

    Implements msa.search.engine.Engine; requests must have all sequences of the database as targets.

    Args:
        engine: filters and aligns.
        database: the clustered database.
    """

    def __init__(self, engine: Engine, database: TargetDatabase) -> None:
        self._engine, self._database = engine, database
        count = database.representatives
        targets = database.arrays
        _, end = targets.byte_range(0, count)
        self._representatives = SequenceArrays(
            targets.residues[:end], targets.offsets[:count], targets.lengths[:count]
        )

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent by the wrapped engine."""
        return self._engine.seconds

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Filter and align the representatives, then align the other members of the clusters that were found.

        Progress counts cluster members as if they were filtered together with their representatives.
        """
        pending_queries: deque[QueryProfile] = deque()
        representative_candidates: deque[Candidates] = deque()

        def recorded_queries() -> Iterator[QueryProfile]:
            for query in queries:
                pending_queries.append(query)
                yield query

        def progress(pairs: int) -> None:
            if request.progress is not None:
                request.progress(pairs * len(request.targets) // len(self._representatives))

        filter_request = replace(request, targets=self._representatives, progress=progress)

        def members() -> Iterator[tuple[QueryProfile, np.ndarray]]:
            for candidates in self._engine.run(recorded_queries(), filter_request):
                representative_candidates.append(candidates)
                hits = candidates.targets[candidates.aligned]
                yield pending_queries.popleft(), self._database.members(hits)

        for member_candidates in self._engine.align(members(), request):
            yield _concatenate(representative_candidates.popleft(), member_candidates)

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Align each query to given targets with the wrapped engine."""
        return self._engine.align(pairs, request)


def _concatenate(first: Candidates, second: Candidates) -> Candidates:
    """Concatenate two sets of candidates of the same query."""
    return Candidates(
        np.concatenate([first.targets, second.targets]),
        np.concatenate([first.scores, second.scores]),
        np.concatenate([first.aligned, second.aligned + len(first.targets)]),
        np.concatenate([first.reversed_scores, second.reversed_scores]),
        [*first.alignments, *second.alignments],
    )
