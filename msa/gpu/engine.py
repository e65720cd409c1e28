"""The GPU search engine: batches of queries pass through filter and alignment. Results equal the CPU's.

The filter of each batch is queued on the GPU before the previous batch is finished, so the GPU keeps
filtering while the host merges, aligns and returns results. With several GPUs, each holds a part of a large
database and every query goes to all of them; a small database is copied to each, and the batches are
distributed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from msa.base.switch_interval import short_switch_interval
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.database_processes import DatabaseProcesses
from msa.engines.engine import Candidates, EngineRequest
from msa.gpu.group import GpuGroup, GpuWorker, align_pairs
from msa.profile.pssm import QueryProfile

if TYPE_CHECKING:
    from msa.gpu.remote_worker import RemoteScoring

_MAX_PENDING = 12
"""Maximum batches in progress per group: one is aligned, one is filtered, the others wait for the GPU. The
host needs about as long for a batch as each of four GPUs, the last batches are small, and the GPU should have
work for a second while the host loads kernels for scores."""

_BATCH_QUERIES, _BATCH_RESIDUES = 24, 6144
"""Maximum queries and residues of a batch if the database is resident: small, so that the host gets the first
batch early and little is left to do after the last batch is filtered."""

_STREAMED_BATCH_QUERIES, _STREAMED_BATCH_RESIDUES = 512, 8192
"""The same for a streamed database: filtering a residue then takes about four times as long as copying it."""

_MIN_QUERIES, _STREAMED_MIN_QUERIES = 4, 8
"""At the end of a search, batches are halved down to this number of queries; smaller ones would not justify
another pass over the database. If the database is resident, the first batch has this size, and each further
one twice the size of the one before, so that the GPU starts sooner."""

_MANY_PAIRS = 2_000_000
"""Minimum number of alignments of a search for which the kernels for many pairs are compiled, in 15 s of CPU
time."""

_REPLICATED_BYTES = 2**30
"""Maximum residues of a database that is copied to every GPU, which takes 0.1 s. No GPU then waits for
another: in a small part of a database, the last targets of each query take a large share of the time."""


class GpuEngine:
    """Filter and alignment on GPUs; implements msa.engines.engine.Engine.

    Args:
        workers: one or several GPUs, owned by the engine from now on.
        replacement_workers: called before a database is searched; returns the workers that replace the
            current ones from this search on, or None.
        scoring_process: scores candidates, if there is only one worker; owned by the engine from now on.
    """

    def __init__(
        self,
        workers: Sequence[GpuWorker],
        replacement_workers: Callable[[SequenceArrays], Sequence[GpuWorker] | None] = lambda targets: None,
        scoring_process: "RemoteScoring | None" = None,
    ) -> None:
        self.scoring_process, self.processes = scoring_process, DatabaseProcesses()
        self.workers, self._replacement_workers = workers, replacement_workers
        self._groups: list[GpuGroup] = []
        self._targets: SequenceArrays | None = None
        self._groups_lock, self._runs_lock = threading.Lock(), threading.Lock()
        self._runs = 0
        self._announced: Sequence[int] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per stage so far, summed over all GPUs.

        "queueing": host time of the filter's launches; "filter": GPU time of the filter; "alignment": host
        time in alignment, including waits.
        """
        return {
            stage: sum(worker.seconds[stage] for worker in self.workers)
            for stage in ("queueing", "filter", "alignment")
        }

    @property
    def drives_gpus(self) -> bool:
        """True."""
        return True

    def prepare(self, lengths: Sequence[int]) -> None:
        """Compile the kernels for all these query lengths at once, when the next search begins."""
        self._announced = lengths

    def run(self, queries: Iterable[QueryProfile], request: EngineRequest) -> Iterator[Candidates]:
        """Yield the candidates of each query, in order; takes queries in batches.

        Another run may start once all queries have been taken, with the same targets.
        """
        targets = request.targets
        groups = self._groups_for(targets)
        announced, self._announced = self._announced, ()
        if announced:
            pairs = len(announced) * min(request.settings.max_candidates, len(targets))
            for worker in self.workers:
                worker.prepare(announced, pairs >= _MANY_PAIRS)
        cancelled = threading.Event()
        pending: deque[tuple[int, Future[list[Candidates]]]] = deque()
        filtered_pairs = 0

        def wait_for_oldest() -> list[Candidates]:
            nonlocal filtered_pairs
            count, future = pending.popleft()
            candidates = future.result()
            filtered_pairs += count * len(targets)
            if request.progress is not None:
                request.progress(filtered_pairs)
            return candidates

        started_queries = 0
        with self._runs_lock:
            self._runs += 1
        with short_switch_interval():
            try:
                for number, (batch, more_follow) in enumerate(_query_batches(queries, groups)):
                    if len(pending) >= _MAX_PENDING * len(groups):
                        yield from wait_for_oldest()
                    group = groups[number % len(groups)]
                    found = group.search(batch, request, started_queries, more_follow, cancelled)
                    pending.append((len(batch), found))
                    started_queries += len(batch)
                while pending:
                    yield from wait_for_oldest()
            finally:
                if pending or filtered_pairs < started_queries * len(targets):
                    # after an error, or if the caller stops early, leave no work on the GPUs
                    cancelled.set()
                    drained = [worker.drain() for worker in self.workers]
                    for _, future in pending:
                        future.exception()
                    _wait_ignoring_errors(drained)
                with self._runs_lock:
                    self._runs -= 1
                    is_last = not self._runs
                if is_last:
                    _wait_ignoring_errors([worker.release_unused() for worker in self.workers])

    def align(
        self, pairs: Iterable[tuple[QueryProfile, np.ndarray]], request: EngineRequest
    ) -> Iterator[Candidates]:
        """Align each query to its targets and yield its candidates; split batches over the GPUs."""
        return align_pairs(self.workers, pairs, request)

    def close(self) -> None:
        """Release the GPUs; nothing may be in progress, and no calls may follow."""
        if self.scoring_process is not None:
            self.scoring_process.close()
        for group in self._groups:
            group.close()
        for worker in self.workers:
            worker.close()

    def _groups_for(self, targets: SequenceArrays) -> list[GpuGroup]:
        """Return the groups of GPUs, with these targets loaded or being loaded."""
        with self._groups_lock:
            loaded = self._targets
            if loaded is not None and (
                loaded.residues.ctypes.data == targets.residues.ctypes.data and len(loaded) == len(targets)
            ):
                return self._groups
            for group in self._groups:
                group.close()
            self._groups, self._targets = [], None
            replacements = self._replacement_workers(targets)
            if replacements is not None:
                for worker in self.workers:
                    worker.close()
                self.workers, self._replacement_workers = replacements, lambda targets: None
            workers = self.workers
            if len(workers) == 1 or len(targets.residues) <= _max_replicated_bytes(workers):
                self._groups = [GpuGroup([worker], targets) for worker in workers]
            else:
                self._groups = [GpuGroup(workers, targets)]
            self._targets = targets
            return self._groups


def _wait_ignoring_errors(futures: Sequence["Future[None]"]) -> None:
    """Wait for all; errors have been reported before, or the next search reports them."""
    for future in futures:
        future.exception()


def _max_replicated_bytes(workers: Sequence[GpuWorker]) -> int:
    """Return the maximum residues of a database that is copied to every GPU, with offsets and lengths."""
    return min(_REPLICATED_BYTES, *(worker.database_budget // 2 for worker in workers), 2**62)


def _query_batches(
    queries: Iterable[QueryProfile], groups: Sequence[GpuGroup]
) -> Iterator[tuple[list[QueryProfile], bool]]:
    """Group queries into batches, each with a flag whether another follows."""
    batch: list[QueryProfile] = []
    residues, ramp = 0, _MIN_QUERIES
    for query in queries:
        resident = all(group.resident for group in groups)
        max_queries = min(_BATCH_QUERIES, ramp) if resident else _STREAMED_BATCH_QUERIES
        max_residues = _BATCH_RESIDUES if resident else _STREAMED_BATCH_RESIDUES
        if batch and (len(batch) >= max_queries or residues + len(query.codes) > max_residues):
            yield batch, True
            batch, residues, ramp = [], 0, 2 * ramp
        batch.append(query)
        residues += len(query.codes)
    # split the last queries into ever smaller batches, so that little is left to do after the last filter
    while batch:
        min_queries = _MIN_QUERIES if all(group.resident for group in groups) else _STREAMED_MIN_QUERIES
        count = len(batch) if len(batch) <= min_queries else -(-len(batch) // 2)
        yield batch[:count], count < len(batch)
        batch = batch[count:]
