"""A process that scores the candidates of a search while the searching one feeds a GPU.

Scoring takes as much time of an interpreter as everything else in a search with many queries, and begins with
the import of numba and the loading of compiled kernels. In the searching process, the GPU would wait for it.
"""

import threading
from concurrent.futures import Future

from msa.base.services.service import Service
from msa.database.database import TargetDatabase
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules


class RemoteScoring:
    """A process with a `ScoringHandler`; implements scored_batch.ScoringProcess.

    It ends with this object.

    Args:
        service: the process.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._lock = service, threading.Lock()
        # those that the process knows, by number
        self._searches: list[tuple[TargetDatabase, ScoringRules]] = []

    def submit(self, batch: AlignedBatch, database: TargetDatabase, rules: ScoringRules) -> "Future[Scores]":
        """Score candidates.

        Args:
            batch: the candidates.
            database: the database that is searched.
            rules: of the scores.

        Returns:
            Their scores, in the future; raises ServiceEnded if the process ends, which it also does if it
            cannot open the database.
        """
        with self._lock:
            return self._service.request("score", self._search_number(database, rules), batch)

    def close(self) -> None:
        """End the process."""
        self._service.kill()

    def _search_number(self, database: TargetDatabase, rules: ScoringRules) -> int:
        """Return the number of a search, which the process gets to know if it does not yet."""
        for number, known in enumerate(self._searches):
            if known[0] is database and known[1] == rules:
                return number
        self._searches.append((database, rules))
        self._service.request("open", database.path.resolve(), database.manifest, rules)
        return len(self._searches) - 1
