"""One GPU's part of a search: its targets, and the threads that filter and align on it.

The filter has a thread of its own and alignment another, each with streams of its own that wait for no
other's. So the filter of the next queries is queued, and runs, while the host and the GPU align what passed
the last. What the threads run is imported there: the database is on its way to the GPU meanwhile.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba import cuda

from msa.cpu.targets import Targets
from msa.engine import QueryProfile
from msa.gpu.compiling import Compiling
from msa.gpu.devices import Gpu
from msa.gpu.limits import Limits
from msa.gpu.memory import SIMULATED, Allocate, allocate_on_gpu, is_out_of_memory, new_stream, release_unused
from msa.gpu.residency import MOST_CHUNK_BYTES, Chunk, Residency

if TYPE_CHECKING:
    from cuda.alignment.best import QueryFilter
    from msa.gpu.filtering import Filter, Found

FILTER_BYTES_PER_TARGET = 72
"""GPU memory that the filter takes for each target of a chunk, on all its streams."""

Result = TypeVar("Result")

# numba's simulator runs one kernel at a time
_turn: Any = threading.RLock() if SIMULATED else contextlib.nullcontext()


@dataclass(frozen=True)
class GpuSettings:
    """How the engine uses a GPU; hits do not depend on it.

    Args:
        kernels: folder that keeps compiled kernels between runs.
        share: of a GPU's free memory that the database may take.
        most_bytes: that it may take on each GPU.
        most_chunk_bytes: of residues scored at a time.
        allocate: how GPU memory is taken.
    """

    kernels: Path
    share: float = 0.9
    most_bytes: int = 2**62
    most_chunk_bytes: int = MOST_CHUNK_BYTES
    allocate: Allocate = allocate_on_gpu


class Worker:
    """One GPU. `filter` and `submit` return at once; what they return comes in the order of the calls.

    Args:
        gpu: from `find_gpu`.
        settings: see GpuSettings.
        compiling: makes the kernels.
    """

    def __init__(self, gpu: Gpu, settings: GpuSettings, compiling: Compiling) -> None:
        self.gpu, self.settings, self.compiling = gpu, settings, compiling
        self._preparing, self._filtering, self._aligning = (
            ThreadPoolExecutor(1, f"{name} on GPU {gpu.number}", cuda.select_device, (gpu.number,))
            for name in ("tables", "filter", "alignment")
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
    def budget(self) -> int:
        """Bytes of GPU memory that targets may take."""
        return min(int(self.settings.share * self.gpu.free_bytes), self.settings.most_bytes)

    def hold(self, targets: Targets, part: tuple[int, int]) -> None:
        """Have these targets from now on; their copy begins at once.

        Args:
            targets: the database.
            part: first target and end.
        """
        self._filtering.submit(self._hold, targets, part).result()

    def _hold(self, targets: Targets, part: tuple[int, int]) -> None:
        if self._residency is not None:
            self._residency.close()
        self.targets, self._part = targets, part
        self._residency = Residency(
            targets, part, self.gpu.number, self.budget, FILTER_BYTES_PER_TARGET,
            self.settings.allocate, self.settings.most_chunk_bytes,
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
    ) -> "Future[Found]":
        """The best targets of queries, among those held; the result is there when the work is queued.

        Args:
            batch: the queries.
            limits: what passes.
            again: whether another batch follows.
            stopped: once set, nothing more is queued, and the result is worth nothing.
        """
        # while the last batch is filtered: a query's tables take longer than its filter in one chunk
        made = self._preparing.submit(self.compiling.for_filter, [len(query.codes) for query in batch])
        tables = [self._preparing.submit(self._tables_of, query, made) for query in batch]
        return self._filtering.submit(self._queue, tables, limits, again, stopped)

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
            self._filter = Filter(self.settings.allocate)
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

    def drain(self) -> None:
        """Wait for all that is queued on the GPU."""
        self._filtering.submit(cuda.synchronize).result()

    def rest(self) -> None:
        """Give back GPU memory that is not needed between searches; nothing is under way."""
        self._aligning.submit(release_unused).result()
