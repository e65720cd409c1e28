"""One GPU's part of a search, in the process that has the GPU: its targets, and the threads that use it.

The filter has a thread of its own and alignment another, each with streams of its own that wait for no
other's; a third waits for what the filter finds. So the filter of the next queries is queued, and runs, while
the host and the GPU align what passed the last. What the threads run is imported there: the database is on
its way to the GPU meanwhile.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numba import cuda

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.compiling import Compiling
from msa.gpu.database_stream import MOST_CHUNK_BYTES, Chunk, Residency, whole_bytes
from msa.gpu.devices import Gpu
from msa.gpu.gpu_worker import Best, Paths
from msa.gpu.limits import Limits
from msa.gpu.memory import SIMULATED, Allocate, allocate_on_gpu, is_out_of_memory, new_stream, release_unused
from msa.gpu.settings import GpuSettings
from msa.search.engine import QueryProfile

if TYPE_CHECKING:
    from cuda.alignment.top_k import QueryFilter
    from msa.gpu.alignment import Alignment
    from msa.gpu.filtering import Filter, Found

FILTER_BYTES_PER_TARGET = 72
"""GPU memory that the filter takes for each target of a chunk, on all its streams."""

Result = TypeVar("Result")

# numba's simulator runs one kernel at a time
_turn: Any = threading.RLock() if SIMULATED else contextlib.nullcontext()


class Worker:
    """One GPU; see msa.gpu.gpu_worker.Member.

    Args:
        gpu: from `find_gpu`.
        settings: see GpuSettings.
        compiling: makes the kernels.
        allocate: how GPU memory is taken.
    """

    def __init__(
        self, gpu: Gpu, settings: GpuSettings, compiling: Compiling, allocate: Allocate = allocate_on_gpu
    ) -> None:
        self.gpu, self.settings, self.compiling, self.allocate = gpu, settings, compiling, allocate
        self._preparing, self._filtering, self._waiting, self._aligning = (
            ThreadPoolExecutor(1, f"{name} on GPU {gpu.number}", cuda.select_device, (gpu.number,))
            for name in ("tables", "filter", "candidates", "alignment")
        )
        self._residency: Residency | None = None
        self._filter: Filter | None = None
        self._stream: Any = None
        self._seconds = {"queueing": 0.0, "alignment": 0.0}

    @property
    def seconds(self) -> dict[str, float]:
        """Host seconds of the filter's launches and of alignment, GPU seconds of the filter."""
        return {**self._seconds, "filter": 0.0 if self._filter is None else self._filter.seconds}

    @property
    def name(self) -> str:
        """The GPU's, as the driver gives it."""
        return self.gpu.name

    @property
    def kernels(self) -> Path:
        """Folder of compiled kernels."""
        return self.settings.kernels

    @property
    def budget(self) -> int:
        """Bytes of GPU memory that targets may take."""
        return self.settings.budget(self.gpu.free_bytes)

    def has_room_for(self, targets: SequenceArrays) -> bool:
        """Whether a whole database can stay on the GPU."""
        return whole_bytes(targets, (0, len(targets)), FILTER_BYTES_PER_TARGET) <= self.budget

    def hold(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Have these targets from now on."""
        return self._filtering.submit(self._hold, targets, part)

    def _hold(self, targets: SequenceArrays, part: tuple[int, int]) -> None:
        if self._residency is not None:
            self._residency.close()
        self.targets, self._part = targets, part
        self._residency = Residency(
            targets, part, self.gpu.number, self.budget, FILTER_BYTES_PER_TARGET,
            self.allocate, self.settings.most_chunk_bytes or MOST_CHUNK_BYTES,
        )  # fmt: skip
        self._residency.begin()

    @property
    def stays(self) -> bool:
        """Whether the targets stay on the GPU, as far as is known."""
        return self._residency is not None and self._residency.stays

    @property
    def whole(self) -> Chunk | None:
        """The chunk that has all targets and stays on the GPU, if there is one."""
        return None if self._residency is None else self._residency.whole

    def filter(
        self, batch: Sequence[QueryProfile], limits: Limits, again: bool, stopped: threading.Event
    ) -> "LocalBatch":
        """Queue the filter of a batch."""
        # while the last batch is filtered: a query's tables take longer than its filter in one chunk
        made = self._preparing.submit(self.compiling.for_filter, [len(query.codes) for query in batch])
        tables = [self._preparing.submit(self._tables_of, query, made) for query in batch]
        found = self._filtering.submit(self._queue, tables, limits, again, stopped)
        return LocalBatch(self, batch, self._waiting.submit(_best, found))

    def aligning(self, batch: Sequence[QueryProfile], targets: SequenceArrays) -> "LocalAligning":
        """A batch for other targets than those held."""
        return LocalAligning(self, Elsewhere(self, targets), batch)

    def _tables_of(self, query: QueryProfile, made: "Future[None]") -> "QueryFilter":
        from msa.gpu.filtering import tables_of

        made.result()
        return tables_of(query, self.settings.kernels)

    def _queue(
        self,
        tables: "Sequence[Future[QueryFilter]]",
        limits: Limits,
        again: bool,
        stopped: threading.Event,
    ) -> "Found":
        from msa.gpu.filtering import Filter

        started = time.perf_counter()
        residency = self._residency
        assert residency is not None
        residency.begin()
        if self._filter is None:
            self._filter = Filter(self.allocate)
        found = self._filter.begin(tables)
        first, end = self._part
        while first < end and not stopped.is_set():
            try:
                for chunk in residency.chunks(end, again):
                    with _turn:
                        self._filter.queue(chunk, limits, found, stopped)
                    end = chunk.first
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._filter.forget()
                residency.shrink(getattr(error, "asked", 0))
        self._seconds["queueing"] += time.perf_counter() - started
        return found

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Do something in the thread for alignments."""

        def measured() -> Result:
            started = time.perf_counter()
            with _turn:
                result = work()
            self._seconds["alignment"] += time.perf_counter() - started
            return result

        return self._aligning.submit(measured)

    @property
    def stream(self) -> Any:
        """For the thread for alignments: its work goes before the filter's, as there is little of it."""
        if self._stream is None:
            self._stream = new_stream(urgent=True)
        return self._stream

    def drain(self) -> "Future[None]":
        """Wait for all that is queued on the GPU."""
        return self._filtering.submit(cuda.synchronize)

    def rest(self) -> "Future[None]":
        """Give back GPU memory that is not needed between searches."""
        return self._aligning.submit(release_unused)

    def close(self) -> None:
        """Give back the targets' GPU memory and end the threads."""
        for thread in (self._preparing, self._waiting, self._aligning):
            thread.shutdown()
        if self._residency is not None:
            self._filtering.submit(self._residency.close).result()
        self._filtering.shutdown()


class Elsewhere:
    """A worker's GPU for alignment to targets that it does not hold; see msa.gpu.alignment.Gpu."""

    whole: Final = None

    def __init__(self, worker: Worker, targets: SequenceArrays) -> None:
        self._worker, self.targets = worker, targets
        self.name, self.kernels = worker.name, worker.kernels
        self.compiling, self.allocate = worker.compiling, worker.allocate

    @property
    def stream(self) -> Any:
        """The worker's for alignments."""
        return self._worker.stream


class LocalAligning:
    """A batch on a GPU of this process; see msa.gpu.gpu_worker.Aligning.

    Args:
        worker: whose thread for alignments is used.
        gpu: the worker itself or, for other targets, Elsewhere.
        queries: the batch.
    """

    def __init__(self, worker: Worker, gpu: Worker | Elsewhere, queries: Sequence[QueryProfile]) -> None:
        self._worker, self._gpu, self._queries = worker, gpu, queries
        self._alignment: Alignment | None = None

    def scores(
        self, owners: np.ndarray, places: np.ndarray, gaps: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Scores of alignments, int32 [n]."""

        def scored() -> np.ndarray:
            # not before: the filter's own imports come first
            from msa.gpu.alignment import Alignment

            if reverse:
                return Alignment(self._gpu, _reversed(self._queries), owners, places, gaps).scores()
            self._alignment = Alignment(self._gpu, self._queries, owners, places, gaps)
            return self._alignment.scores()

        return self._worker.submit(scored)

    def paths(self, kept: np.ndarray) -> "Future[Paths]":
        """The alignments of the pairs at some places of those scored."""

        def traced() -> Paths:
            assert self._alignment is not None
            return self._alignment.paths(kept)

        return self._worker.submit(traced)


class LocalBatch(LocalAligning):
    """A batch that is filtered first; see msa.gpu.gpu_worker.Batch."""

    def __init__(self, worker: Worker, queries: Sequence[QueryProfile], best: "Future[Best]") -> None:
        super().__init__(worker, worker, queries)
        self._best = best

    def best(self) -> "Future[Best]":
        """What the filter found."""
        return self._best


def _reversed(queries: Sequence[QueryProfile]) -> list[QueryProfile]:
    """The queries from their last residue to their first."""
    return [
        QueryProfile(*map(np.ascontiguousarray, (query.codes[::-1], query.profile[::-1])))
        for query in queries
    ]


def _best(queued: "Future[Found]") -> Best:
    """What the filter found, once it has."""
    found = queued.result().wait()
    counts = np.array([sum(len(places) for places, _ in parts) for parts in found], np.int64)
    every = [part for parts in found for part in parts]
    places = np.concatenate([np.empty(0, np.int64), *(places for places, _ in every)])
    return Best(counts, places, np.concatenate([np.empty(0, np.int32), *(scores for _, scores in every)]))
