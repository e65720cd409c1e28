"""Searches of clustered databases: first representatives, then the members of the clusters of hits."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from msa.database.database import TargetDatabase
from msa.engines.engine import Candidates, Engine, EngineRequest, EngineWrapper
from msa.profile.pssm import QueryProfile


class ClusterExpandingEngine(EngineWrapper):
    """An engine for clustered databases that wraps another engine.

    It searches the representatives. If one is a hit, all members of its cluster are aligned to the query, so
    that each has its own score, E-value and path. A member can only be found through its representative.
    Implements msa.engines.engine.Engine; requests must have all sequences of the database as targets.
    """

    def __init__(self, engine: Engine, database: TargetDatabase) -> None:
        super().__init__(engine)
        self._database = database
        self._representatives = database.representative_arrays

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Filter and align the representatives, then align the other members of the clusters that were found.

        Progress counts cluster members as if they were filtered together with their representatives.
        `SelectionCriteria.max_aligned` limits the representatives only.
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

        selection = None if request.selection is None else replace(request.selection, max_aligned=None)
        for member_candidates in self._engine.align(members(), replace(request, selection=selection)):
            yield representative_candidates.popleft().followed_by(member_candidates)
