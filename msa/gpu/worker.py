"""One GPU's part of a search: its targets, the filter of a batch of queries, and alignments.

The filter has a thread of its own and alignment another, each with streams of its own that wait for no
other's. So the filter of the next queries is queued, and runs, while the host and the GPU align what passed
the last.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import cuda

from cuda.alignment.best.query import QueryFilter
from cuda.alignment.best.targets import BestTargets
from cuda.alignment.gotoh import Alignments, DeviceTargets, Pairs, Query, end_positions, trace_paths
from msa.cpu.targets import Targets
from msa.engine import QueryProfile
from msa.gpu.devices import Gpu, GpuUnavailable
from msa.gpu.gather import gathered
from msa.gpu.kernels import Compiling
from msa.gpu.memory import (
    SIMULATED,
    Allocate,
    OutOfGpuMemory,
    allocate_on_gpu,
    free_bytes,
    is_out_of_memory,
    new_stream,
    release_unused,
)
from msa.gpu.residency import MOST_CHUNK_BYTES, Chunk, Residency

_LANES = 4
"""Streams of the filter. After the bounds of a query's scores, which fill the GPU, come a dozen small steps
that wait for each other: those of so many queries go side by side."""
_ALIGNMENT_BYTES = 2**30
"""GPU memory for intermediate results of alignments."""
_FEWEST_ALIGNMENT_BYTES = 2**20

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


@dataclass(frozen=True)
class Limits:
    """What passes the filter: at most so many, of at least a score (half-bits)."""

    most: int
    smallest: int


@dataclass(frozen=True)
class _Rows:
    """Where the targets found for a batch in one chunk are written, and how they come back.

    Args:
        there: device int32 [queries, 1 + 2 · most].
        each: its rows.
        here: the same in pinned host memory.
        begun, done: events before the filter and after the copy.
    """

    there: Any
    each: list[Any]
    here: np.ndarray
    begun: Any
    done: Any


@dataclass(frozen=True)
class _Lane:
    """A stream of the filter with what it needs; used by one thread."""

    stream: Any
    event: Any
    best: BestTargets


@dataclass
class Found:
    """What a batch's filter has found on one GPU, once that is done.

    Args:
        parts: (first target, where its targets are written) of each chunk.
        filters: kept until then, as the GPU reads their tables.
    """

    worker: "Worker"
    queries: int
    most: int
    parts: list[tuple[int, _Rows]] = field(default_factory=list)
    filters: list[QueryFilter] = field(default_factory=list)

    def wait(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Places in the database, int64, and scores, int32, of each query's targets in each chunk."""
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(self.queries)]
        for first, rows in self.parts:
            rows.done.synchronize()
            for kept, row in zip(found, rows.here, strict=False):
                places, scores = row[1 : 1 + row[0]], row[1 + self.most : 1 + self.most + row[0]]
                kept.append((places.astype(np.int64) + first, scores.copy()))
        self.worker.take_back(self)
        return found


class Worker:
    """One GPU. `filter` and `align` return at once; what they return comes in the order of the calls.

    Args:
        gpu: from `find_gpu`.
        settings: see GpuSettings.
        compiling: makes the kernels.
    """

    def __init__(self, gpu: Gpu, settings: GpuSettings, compiling: Compiling) -> None:
        self.gpu, self._settings, self.compiling = gpu, settings, compiling
        self._filtering, self._aligning = (
            ThreadPoolExecutor(1, f"{name} on GPU {gpu.number}", cuda.select_device, (gpu.number,))
            for name in ("filter", "alignment")
        )
        self._residency: Residency | None = None
        self._streams: list[tuple[Any, Any]] = []
        self._lanes: tuple[Limits, int, list[_Lane]] | None = None
        self._spare: list[tuple[tuple[int, int], _Rows]] = []
        self._copying: Any = None
        self._urgent: Any = None
        self.seconds = {"queueing": 0.0, "filter": 0.0, "alignment": 0.0}

    @property
    def budget(self) -> int:
        """Bytes of GPU memory that targets may take."""
        return min(int(self._settings.share * self.gpu.free_bytes), self._settings.most_bytes)

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
        self._targets, self._part = targets, part
        self._residency = Residency(
            targets, part, self.gpu.number, self.budget, _LANES * BestTargets.bytes_per_target,
            self._settings.allocate, self._settings.most_chunk_bytes,
        )  # fmt: skip
        self._residency.begin()

    @property
    def stays(self) -> bool:
        """Whether the targets stay on the GPU, as far as is known."""
        return self._residency is not None and self._residency.stays

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
        return self._filtering.submit(self._filter, batch, limits, again, stopped)

    def _filter(
        self, batch: Sequence[QueryProfile], limits: Limits, again: bool, stopped: threading.Event
    ) -> Found:
        started = time.perf_counter()
        residency = self._residency
        assert residency is not None
        residency.begin()
        found = Found(self, len(batch), limits.most)
        with _turn:
            self.compiling.for_filter(len(query.codes) for query in batch)
            # the first one takes longest: while the first chunk is copied
            found.filters.append(QueryFilter(batch[0].profile, self._settings.kernels))
        first, end = self._part
        while first < end and not stopped.is_set():
            try:
                for chunk in residency.chunks(first, again):
                    with _turn:
                        self._queue(chunk, batch, limits, found, stopped)
                    first = chunk.end
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._lanes = None
                self._spare.clear()
                residency.shrink(getattr(error, "asked", 0))
        self.seconds["queueing"] += time.perf_counter() - started
        return found

    def _queue(
        self,
        chunk: Chunk,
        batch: Sequence[QueryProfile],
        limits: Limits,
        found: Found,
        stopped: threading.Event,
    ) -> None:
        """Queue the filter of a batch in one chunk."""
        lanes = self._lanes_for(limits, len(chunk))
        rows = self._rows_for(len(batch), 1 + 2 * limits.most)
        rows.begun.record(lanes[0].stream)
        for lane in lanes:
            chunk.ready.wait(lane.stream)
        for k, query in enumerate(batch):
            if stopped.is_set():
                break
            if len(found.filters) == k:
                found.filters.append(QueryFilter(query.profile, self._settings.kernels))
            lane = lanes[k % _LANES]
            lane.best.find(found.filters[k], chunk.residues, chunk.offsets, chunk.lengths, rows.each[k])
        for lane in lanes:
            lane.event.record(lane.stream)
            lane.event.wait(self._copying)
        chunk.used.record(self._copying)
        rows.there.copy_to_host(rows.here, stream=self._copying)
        rows.done.record(self._copying)
        found.parts.append((chunk.first, rows))

    def _lanes_for(self, limits: Limits, targets: int) -> list[_Lane]:
        """The lanes, with room for so many targets."""
        if not self._streams:
            self._streams = [(new_stream(), cuda.event()) for _ in range(_LANES)]
            self._copying = new_stream(urgent=True)
        held = self._lanes
        if held is None or held[0] != limits or held[1] < targets:
            if held is not None:
                for lane in held[2]:
                    lane.stream.synchronize()
            self._lanes = None
            lanes = [
                _Lane(
                    stream,
                    event,
                    BestTargets(limits.most, limits.smallest, targets, stream, self._settings.allocate),
                )
                for stream, event in self._streams
            ]
            self._lanes = held = limits, targets, lanes
        return held[2]

    def _rows_for(self, queries: int, width: int) -> _Rows:
        for place, (shape, rows) in enumerate(self._spare):
            if shape[0] >= queries and shape[1] == width:
                del self._spare[place]
                return rows
        there = self._settings.allocate(queries * width, np.dtype(np.int32))[: queries * width]
        there = there.reshape(queries, width)
        here = cuda.pinned_array((queries, width), np.int32)
        return _Rows(there, [there[k] for k in range(queries)], here, cuda.event(), cuda.event())

    def take_back(self, found: Found) -> None:
        """Use a batch's memory again."""
        for _, rows in found.parts:
            if not SIMULATED:
                self.seconds["filter"] += rows.begun.elapsed_time(rows.done) / 1000
            self._spare.append((rows.here.shape, rows))
        found.parts.clear()
        found.filters.clear()

    def align(
        self, queries: Sequence[QueryProfile], owners: np.ndarray, chosen: np.ndarray, gaps: tuple[int, int]
    ) -> "Alignment":
        """Begin to align queries to targets.

        Args:
            queries: of a batch.
            owners: int32 [n], index in the queries.
            chosen: int64 [n], places in the database.
            gaps: costs of a gap's first residue and each further one, half-bits.
        """
        return Alignment(self, queries, owners, chosen, gaps)

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Do something in the thread for alignments."""

        def measured() -> Result:
            started = time.perf_counter()
            with _turn:
                result = work()
            self.seconds["alignment"] += time.perf_counter() - started
            return result

        return self._aligning.submit(measured)

    def stream_for_alignment(self) -> Any:
        """Its work goes before the filter's: there is little of it, and the host waits."""
        if self._urgent is None:
            self._urgent = new_stream(urgent=True)
        return self._urgent

    def targets_for_alignment(self, chosen: np.ndarray) -> tuple[DeviceTargets, np.ndarray]:
        """Where targets are on the GPU, and their places there, int64; a copy if need be."""
        whole = None if self._residency is None else self._residency.whole
        if whole is not None:
            # the copy may not have ended yet when nothing has waited for it
            whole.ready.wait(self.stream_for_alignment())
            return DeviceTargets(whole.residues, whole.offsets, whole.lengths), chosen - whole.first
        places, which = np.unique(chosen, return_inverse=True)
        arrays = gathered(self._targets, places)
        stream = self.stream_for_alignment()
        return DeviceTargets(*(cuda.to_device(array, stream=stream) for array in arrays)), which

    def lengths_of(self, chosen: np.ndarray) -> np.ndarray:
        """int32 [n], residues of targets."""
        return self._targets.lengths[chosen]

    @property
    def allocate(self) -> Allocate:
        """How GPU memory is taken."""
        return self._settings.allocate

    @property
    def kernels(self) -> Path:
        """Folder of compiled kernels."""
        return self._settings.kernels

    def drain(self) -> None:
        """Wait for all that is queued on the GPU."""
        self._filtering.submit(cuda.synchronize).result()

    def rest(self) -> None:
        """Give back GPU memory that is not needed between searches; nothing is under way."""
        self._aligning.submit(release_unused).result()

    def close(self) -> None:
        """Give back all GPU memory and end the threads."""

        def release() -> None:
            self._lanes = None
            self._spare.clear()
            if self._residency is not None:
                self._residency.close()
                self._residency = None

        self._filtering.submit(release).result()
        self._filtering.shutdown()
        self._aligning.shutdown()


class Alignment:
    """Alignments of a batch's queries to targets of one GPU: scores first, then the paths of some.

    Args:
        worker: the GPU.
        queries, owners, chosen, gaps: see `Worker.align`.
    """

    def __init__(
        self,
        worker: Worker,
        queries: Sequence[QueryProfile],
        owners: np.ndarray,
        chosen: np.ndarray,
        gaps: tuple[int, int],
    ) -> None:
        self._worker, self._gaps = worker, gaps
        self._queries = [Query(query.profile, query.codes) for query in queries]
        self._owners, self._chosen = owners, chosen
        self._ends = np.empty((0, 3), np.int32)

    def scores(self) -> "Future[np.ndarray]":
        """int32 [n], half-bits."""
        return self._worker.submit(self._scores)

    def paths(self, kept: np.ndarray) -> "Future[list[Alignments]]":
        """The alignments of the pairs at some places, int64, one after the other; after `scores` is there."""
        return self._worker.submit(lambda: self._paths(kept))

    def _scores(self) -> np.ndarray:
        self._worker.compiling.for_alignment([len(query.codes) for query in self._queries])

        def score(places: np.ndarray, pairs: tuple[Any, Any, Any], how: dict[str, Any]) -> np.ndarray:
            return end_positions(*pairs, **how)

        pieces = self._in_pieces(np.arange(len(self._owners)), score)
        self._ends = np.concatenate([self._ends, *pieces])
        return self._ends[:, 0]

    def _paths(self, kept: np.ndarray) -> list[Alignments]:
        def trace(places: np.ndarray, pairs: tuple[Any, Any, Any], how: dict[str, Any]) -> Alignments:
            return trace_paths(*pairs, self._ends[places], **how)

        return list(self._in_pieces(kept, trace))

    def _in_pieces(self, places: np.ndarray, work: Callable[..., Result]) -> Iterator[Result]:
        """Do something with pairs, with fewer of them at a time when the GPU has not the memory."""
        most, budget, first = len(places), _ALIGNMENT_BYTES, 0
        worker = self._worker
        while first < len(places):
            piece = places[first : first + most]
            try:
                chosen = self._chosen[piece]
                targets, which = worker.targets_for_alignment(chosen)
                pairs = Pairs(self._owners[piece], which, worker.lengths_of(chosen))
                how = {
                    "gap_open": self._gaps[0],
                    "gap_extend": self._gaps[1],
                    "stream": worker.stream_for_alignment(),
                    "budget": budget,
                    "kernels": worker.kernels,
                    "allocate": worker.allocate,
                }
                result = work(piece, (self._queries, targets, pairs), how)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if most <= 1 and budget <= _FEWEST_ALIGNMENT_BYTES:
                    asked = error.asked if isinstance(error, OutOfGpuMemory) else 0
                    raise GpuUnavailable(
                        f"{worker.gpu.name} has no memory left for a single alignment: {asked} bytes are "
                        f"asked for, {free_bytes()} are free"
                    ) from error
                most, budget = max(1, len(piece) // 2), max(_FEWEST_ALIGNMENT_BYTES, budget // 2)
                release_unused()
                continue
            first += len(piece)
            yield result
