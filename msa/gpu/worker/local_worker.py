"""One GPU driven by threads of this process.

Threads build the tables of queries, queue the filter, wait for its results, and align; the filter and each
alignment thread have their own streams. So the filter of the next queries is queued, and runs, while the host
and the GPU align the candidates of earlier ones.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from cuda.alignment import AlignmentPaths
from cuda.alignment import device as gpu_device
from cuda.alignment.device import new_stream, release_unused
from cuda.alignment.gapless import TableUploader
from msa.base.progress import CompileProgress
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.database_stream import DEFAULT_CHUNK_BYTES, DatabaseStream
from msa.gpu.device.devices import Gpu
from msa.gpu.device.memory import Allocate, allocate_on_gpu, is_out_of_memory
from msa.gpu.device.target_upload import TargetUploader
from msa.gpu.worker.alignment import AlignmentContext, BatchAligner
from msa.gpu.worker.filtering import (
    FILTER_BYTES_PER_TARGET,
    BatchFilter,
    PendingFilter,
    UploadedQueries,
    resident_database_bytes,
    upload_queries,
)
from msa.gpu.worker.interface import ALIGNMENT_THREADS, BestTargets, GpuSettings
from msa.gpu.worker.kernel_compiler import FILTER, MANY_ALIGNMENTS, KernelCompiler
from msa.profile.pssm import QueryProfile

Result = TypeVar("Result")

_RESERVED_BYTES, _RESERVED_DIVISOR = 512 * 2**20, 64
"""GPU memory that each alignment thread reserves in a search of several batches: what most batches need, or
the GPU's memory divided by the second number, if that is less. Memory that is allocated later may have to
wait for the filter."""


class LocalWorker:
    """A GPU of this process. It executes requests in the order of the calls, for one search at a time.

    `msa.gpu.remote_worker.RemoteWorker` has the same methods.

    Args:
        gpu: from `find_gpu`.
        settings: see GpuSettings.
        compile_progress: called while kernels are compiled.
        share: see KernelCompiler.
        allocate: allocates GPU memory.
    """

    def __init__(
        self,
        gpu: Gpu,
        settings: GpuSettings,
        compile_progress: CompileProgress = lambda compiled, needed: None,
        share: tuple[int, int] = (0, 1),
        allocate: Allocate = allocate_on_gpu,
    ) -> None:
        self.gpu, self.settings, self.allocate = gpu, settings, allocate
        self._compile_progress, self._share = compile_progress, share
        self._table_thread, self._filter_thread, self._result_thread, self._alignment_threads = (
            ThreadPoolExecutor(count, f"{name} on GPU {gpu.number}", gpu_device.select_device, (gpu.number,))
            for name, count in (
                ("tables", 1), ("filter", 1), ("candidates", 1), ("alignment", ALIGNMENT_THREADS),
            )
        )  # fmt: skip
        self._database: DatabaseStream | None = None
        self._targets: SequenceArrays | None = None
        self._part = 0, 0
        self._filter: BatchFilter | None = None
        self._compiler: KernelCompiler | None = None
        self._uploader: TableUploader | None = None
        self._compiler_lock, self._seconds_lock = threading.Lock(), threading.Lock()
        self._of_alignment_thread = threading.local()
        # number of searches that have released their memory, and whether the current one has several batches
        self._released, self._has_batches = 0, False
        self._seconds = {"queueing": 0.0, "alignment": 0.0}

    @property
    def seconds(self) -> dict[str, float]:
        """Host seconds of the filter's launches and of alignment, GPU seconds of the filter."""
        return {**self._seconds, "filter": 0.0 if self._filter is None else self._filter.seconds}

    @property
    def database_budget(self) -> int:
        """Bytes of GPU memory that targets may use."""
        return self.settings.database_budget(self.gpu.free_bytes)

    @property
    def resident(self) -> bool:
        """True if the targets stay on the GPU, as far as is known."""
        return self._database is not None and self._database.resident

    def fits(self, targets: SequenceArrays) -> bool:
        """Return whether a whole database can stay on the GPU."""
        return resident_database_bytes(targets) <= self.database_budget

    def load(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Use these targets from now on; their copy to the GPU starts at once.

        Args:
            targets: the database.
            part: first target and end (exclusive) of this GPU's part.
        """
        return self._filter_thread.submit(self._load, targets, part)

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """Compile and load the kernels for queries of these lengths before the filter of later calls begins.

        Those for many pairs are compiled meanwhile; until then, other kernels align.
        """
        return self._table_thread.submit(self._compile_search, lengths, many_pairs)

    def filter(
        self,
        queries: Sequence[QueryProfile],
        settings: SearchSettings,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> "LocalFilteredBatch":
        """Queue the filter of a batch.

        Args:
            queries: the batch.
            settings: limits of the filter.
            more_follow: whether another batch follows.
            cancelled: once set, no more work of this search is queued, and results are meaningless.
        """
        self._has_batches |= more_follow
        # while the previous batch is filtered: building a query's tables takes longer than one chunk's filter
        lengths = [len(query.codes) for query in queries]
        compiled = self._table_thread.submit(lambda: self._kernel_compiler().compile_stage(FILTER, lengths))
        uploaded = self._table_thread.submit(self._upload_queries, queries, compiled)
        pending = self._filter_thread.submit(
            self._queue_filter, len(queries), compiled, uploaded, settings, more_follow, cancelled
        )
        return LocalFilteredBatch(self, queries, self._result_thread.submit(lambda: pending.result().wait()))

    def alignment_batch(
        self, queries: Sequence[QueryProfile], targets: SequenceArrays
    ) -> "LocalAlignmentBatch":
        """Return a batch to align to any targets; they are copied to the GPU as needed."""
        return LocalAlignmentBatch(self, queries, targets)

    def drain(self) -> "Future[None]":
        """Abandon the current search, whose `cancelled` is set, and wait for all queued work."""
        return self._filter_thread.submit(gpu_device.synchronize)

    def release_unused(self) -> "Future[None]":
        """Release GPU memory that is not needed between searches; nothing may be in progress."""
        self._released, self._has_batches = self._released + 1, False
        return self._alignment_threads.submit(release_unused)

    def close(self) -> None:
        """Release the targets' GPU memory and end the threads."""
        for thread in (self._table_thread, self._result_thread, self._alignment_threads):
            thread.shutdown()
        if self._database is not None:
            self._filter_thread.submit(self._database.close).result()
        self._filter_thread.shutdown()

    def submit_alignment(self, work: Callable[[], Result]) -> "Future[Result]":
        """Run a function in an alignment thread."""

        def timed() -> Result:
            started = time.perf_counter()
            result = work()
            with self._seconds_lock:
                self._seconds["alignment"] += time.perf_counter() - started
            return result

        return self._alignment_threads.submit(timed)

    def alignment_context(self, targets: SequenceArrays | None) -> AlignmentContext:
        """Return the context for alignment to some targets, or to the loaded ones.

        For use in an alignment thread, which has its own stream.
        """
        thread = self._of_alignment_thread
        if not hasattr(thread, "stream"):
            # alignment has priority over the filter, because it is short
            thread.stream, thread.reserved = new_stream(urgent=True), -1
            thread.uploader = TargetUploader(self.allocate)
        if self._has_batches and thread.reserved != self._released:
            thread.reserved = self._released
            gpu_device.reserve(min(_RESERVED_BYTES, self.gpu.total_bytes // _RESERVED_DIVISOR))
        sequences = self._targets if targets is None else targets
        assert sequences is not None
        return AlignmentContext(
            self.gpu.name, self.settings.kernels, self._kernel_compiler(), self.allocate,
            thread.stream, thread.uploader, sequences,
            self._single_chunk if targets is None else lambda: None,
        )  # fmt: skip

    def _single_chunk(self) -> Any:
        return None if self._database is None else self._database.single_chunk

    def _kernel_compiler(self) -> KernelCompiler:
        with self._compiler_lock:
            if self._compiler is None:
                self._compiler = KernelCompiler(self.settings.kernels, self._compile_progress, self._share)
            return self._compiler

    def _load(self, targets: SequenceArrays, part: tuple[int, int]) -> None:
        if self._database is not None:
            self._database.close()
        self._targets, self._part = targets, part
        self._database = DatabaseStream(
            targets, part, self.gpu.number, self.database_budget, FILTER_BYTES_PER_TARGET,
            self.allocate, self.settings.max_chunk_bytes or DEFAULT_CHUNK_BYTES,
        )  # fmt: skip
        self._database.start()

    def _compile_search(self, lengths: Sequence[int], many_pairs: bool) -> None:
        compiler = self._kernel_compiler()
        compiler.compile_search(lengths, many=False)
        compiler.load(lengths)
        if many_pairs:

            def compile_rest() -> None:
                # a search needs none of them
                with contextlib.suppress(Exception):
                    gpu_device.select_device(self.gpu.number)
                    compiler.compile_stage(MANY_ALIGNMENTS, lengths)

            # no worker thread, because the process should not wait for it at its end
            threading.Thread(
                target=compile_rest, name=f"kernels on GPU {self.gpu.number}", daemon=True
            ).start()

    def _upload_queries(self, queries: Sequence[QueryProfile], compiled: "Future[None]") -> UploadedQueries:
        compiled.result()
        if self._uploader is None:
            self._uploader = TableUploader(self.allocate)
        return upload_queries(queries, self.settings.kernels, self._uploader)

    def _queue_filter(
        self,
        count: int,
        compiled: "Future[None]",
        uploaded: "Future[UploadedQueries]",
        settings: SearchSettings,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> PendingFilter:
        started = time.perf_counter()
        database, targets = self._database, self._targets
        assert database is not None and targets is not None
        database.start()
        # otherwise, this thread would compile the kernels of the filter, too
        compiled.result()
        if self._filter is None:
            self._filter = BatchFilter(self.allocate)
        max_targets = max(1, min(settings.max_candidates, len(targets)))
        pending = PendingFilter(self._filter, count, uploaded, max_targets, settings.min_ungapped_score)
        first, end = self._part
        while first < end and not cancelled.is_set():
            try:
                for chunk in database.chunks(end, more_follow):
                    if not database.resident:
                        # the driver's queue is limited: wait for the chunk before the last one
                        chunk.used.synchronize()
                    self._filter.queue(chunk, pending, cancelled)
                    end = chunk.first
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._filter.release()
                database.shrink(getattr(error, "requested_bytes", 0))
        self._seconds["queueing"] += time.perf_counter() - started
        return pending


class LocalAlignmentBatch:
    """A batch of queries that a GPU of this process aligns to targets.

    `scores` and then `paths` are called once each; in between, `scores` with `reverse` may be called any
    number of times.

    Args:
        worker: the GPU.
        queries: the batch.
        targets: the sequences to align to; None for those that the worker has loaded.
    """

    def __init__(
        self, worker: LocalWorker, queries: Sequence[QueryProfile], targets: SequenceArrays | None
    ) -> None:
        self._worker, self._queries, self._targets = worker, queries, targets
        self._aligner: BatchAligner | None = None

    def scores(
        self, owners: np.ndarray, targets: np.ndarray, gap_costs: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Compute alignment scores, int32 [n], half-bits.

        Args:
            owners: int32 [n], index of the query in the batch.
            targets: int64 [n], database indices. In a filtered batch, this GPU must hold them.
            gap_costs: cost of a gap's first residue and of each further one, half-bits.
            reverse: align to the reversed profiles; `paths` does not refer to these scores.
        """

        def score() -> np.ndarray:
            queries = _reversed_queries(self._queries) if reverse else self._queries
            aligner = BatchAligner(queries, owners, targets, gap_costs)
            if not reverse:
                self._aligner = aligner
            return aligner.scores(self._worker.alignment_context(self._targets))

        return self._worker.submit_alignment(score)

    def paths(self, selected: np.ndarray) -> "Future[AlignmentPaths]":
        """Compute the alignments of some of the scored pairs, given by int64 indices."""

        def trace() -> AlignmentPaths:
            assert self._aligner is not None
            return self._aligner.paths(self._worker.alignment_context(self._targets), selected)

        return self._worker.submit_alignment(trace)


class LocalFilteredBatch(LocalAlignmentBatch):
    """A batch that is filtered first."""

    def __init__(
        self, worker: LocalWorker, queries: Sequence[QueryProfile], best: "Future[BestTargets]"
    ) -> None:
        super().__init__(worker, queries, None)
        self._best = best

    def best(self) -> "Future[BestTargets]":
        """Return the result of the filter."""
        return self._best


def _reversed_queries(queries: Sequence[QueryProfile]) -> list[QueryProfile]:
    """Return the queries with residues and profile rows in reverse order."""
    return [
        QueryProfile(np.ascontiguousarray(query.codes[::-1]), np.ascontiguousarray(query.profile[::-1]))
        for query in queries
    ]
