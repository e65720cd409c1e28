"""A process that scores the candidates of a search while the searching one feeds a GPU.

Scoring takes as much time of an interpreter as everything else in a search with many queries, and begins with
the import of numba and the loading of compiled kernels. In the searching process, the GPU would wait for it.
"""

import threading
import weakref
from concurrent.futures import Future

from msa.base.child_process import StartedProcess
from msa.database.database import TargetDatabase
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringProcessEnded, ScoringRules
from msa.gpu.requests import Requests


class RemoteScoring:
    """A process that runs scoring.scoring_worker; implements scored_batch.ScoringProcess.

    It ends with this process, or when this object is collected.

    Args:
        started: the process.
        gpu: number of the GPU with which it aligns.
    """

    def __init__(self, started: StartedProcess, gpu: int) -> None:
        self._process, self._requests = started.process, _ScoringRequests(gpu, started.socket)
        self._lock = threading.Lock()
        # those that the process knows, by number
        self._searches: list[tuple[TargetDatabase, ScoringRules]] = []
        self._hang_up = weakref.finalize(self, self._requests.hang_up)

    def submit(self, batch: AlignedBatch, database: TargetDatabase, rules: ScoringRules) -> "Future[Scores]":
        """Score candidates.

        Args:
            batch: the candidates.
            database: the database that is searched.
            rules: of the scores.

        Returns:
            Their scores, in the future; raises ScoringProcessEnded if the process ends, which it also does if
            it cannot open the database.
        """
        with self._lock:
            return self._requests.request("score", self._search_number(database, rules), batch)

    def close(self) -> None:
        """End the process."""
        self._hang_up()
        self._process.kill()
        self._process.wait()

    def _search_number(self, database: TargetDatabase, rules: ScoringRules) -> int:
        """Return the number of a search, which the process gets to know if it does not yet."""
        for number, known in enumerate(self._searches):
            if known[0] is database and known[1] == rules:
                return number
        self._searches.append((database, rules))
        self._requests.request("open", database.path.resolve(), database.manifest, rules)
        return len(self._searches) - 1


class _ScoringRequests(Requests):
    """The pending requests to a process that scores."""

    def ended(self) -> Exception:
        """Return the error of requests that the process did not answer before it ended."""
        return ScoringProcessEnded("the process that scores candidates has ended")
