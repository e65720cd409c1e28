"""Search of a database with clusters: the filter goes through representatives, hits bring their members.

A representative that is a hit stands for its cluster, and every member is aligned to the query by the engine
that searches, so it has its own score, E-value and path. A member is found through its representative only.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.search.candidates import Candidates
from msa.search.engine import Engine, EngineRequest, QueryProfile


class ExpandingEngine:
    """An engine for a database with clusters; see msa.search.engine.Engine.

    Args:
        engine: what does the work.
        database: whose targets, all of them, `run` is given.
    """

    def __init__(self, engine: Engine, database: TargetDatabase) -> None:
        self._engine, self._database = engine, database
        count = database.representatives
        targets = SequenceArrays(database.residues, database.offsets, database.lengths)
        _, end = targets.byte_range(0, count)
        self._searched = SequenceArrays(
            targets.residues[:end], targets.offsets[:count], targets.lengths[:count]
        )

    @property
    def seconds(self) -> dict[str, float]:
        """The engine's own."""
        return self._engine.seconds

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Filter and align the representatives, then align the other members of the aligned ones' clusters.

        Progress counts cluster members as if they were filtered together with their representatives.
        """
        taken: deque[QueryProfile] = deque()
        found: deque[Candidates] = deque()

        def noted() -> Iterator[QueryProfile]:
            for query in queries:
                taken.append(query)
                yield query

        def progress(pairs: int) -> None:
            if request.progress is not None:
                request.progress(pairs * len(request.targets) // len(self._searched))

        representatives = replace(request, targets=self._searched, progress=progress)

        def members() -> Iterator[tuple[QueryProfile, np.ndarray]]:
            for candidates in self._engine.run(noted(), representatives):
                found.append(candidates)
                hits = candidates.targets[candidates.aligned]
                yield taken.popleft(), self._database.members(hits)

        for others in self._engine.align(members(), request):
            yield _together(found.popleft(), others)

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """The engine's own."""
        return self._engine.align(pairs, request)


def _together(first: Candidates, others: Candidates) -> Candidates:
    """Candidates of a query, then others of it."""
    return Candidates(
        np.concatenate([first.targets, others.targets]),
        np.concatenate([first.scores, others.scores]),
        np.concatenate([first.aligned, others.aligned + len(first.targets)]),
        np.concatenate([first.reversed_scores, others.reversed_scores]),
        [*first.alignments, *others.alignments],
    )
