"""GPUs that are each driven by a separate process: the side of the searching process.

The host needs one or two milliseconds of Python per query and GPU. In a single process, the threads of all
GPUs would share one interpreter, and four GPUs would be no faster than two.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from msa.base.progress import CompileProgress
from msa.base.services.service import Service
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.devices import Gpu
from msa.gpu.worker.interface import BestTargets, GpuSettings
from msa.gpu.worker.process_start import GpuProcess
from msa.gpu.worker.worker_process import share_sequences
from msa.profile.pssm import QueryProfile

SendRequest: TypeAlias = Callable[..., "Future[Any]"]
"""Sends a request, given by its method and arguments, and returns its future answer."""


def start_remote_workers(
    processes: Sequence[GpuProcess],
    settings: GpuSettings,
    compile_progress: CompileProgress = lambda compiled, needed: None,
) -> list["RemoteWorker"]:
    """Open the GPUs of processes that were just started.

    Args:
        processes: each ends with its worker.
        settings: of each GPU.
        compile_progress: called with the kernels compiled and to compile, summed over all processes.
    """
    progress = _SummedProgress(len(processes), compile_progress)
    workers = []
    for index, process in enumerate(processes):
        process.status.compile_progress = partial(progress, index)
        workers.append(RemoteWorker(process, settings, (index, len(processes))))
    return workers


class RemoteAlignmentBatch:
    """A batch on a GPU of another process, with the methods of `LocalAlignmentBatch`."""

    def __init__(self, request: SendRequest, number: int, started: "Future[Any]") -> None:
        self._started = started
        self.scores, self.paths = partial(request, "scores", number), partial(request, "paths", number)


class RemoteAligner:
    """Alignments on a GPU that another process drives."""

    def __init__(self, request: SendRequest) -> None:
        self._request, self._batch_numbers = request, count()

    def alignment_batch(
        self, queries: Sequence[QueryProfile], targets: SequenceArrays
    ) -> RemoteAlignmentBatch:
        """Return a batch to align to any targets."""
        number = next(self._batch_numbers)
        started = self._request("alignment_batch", number, list(queries), share_sequences(targets))
        return RemoteAlignmentBatch(self._request, number, started)


class RemoteWorker(RemoteAligner):
    """A GPU driven by a separate process, with the methods of `LocalWorker`.

    Args:
        process: the process, just started; it ends with this object.
        settings: see GpuSettings.
        share: see KernelCompiler.
    """

    def __init__(self, process: GpuProcess, settings: GpuSettings, share: tuple[int, int]) -> None:
        super().__init__(process.service.request)
        self.process, self._settings = process, settings
        self._opened = self._request("open", settings, share)
        self.drain, self.release_unused = (
            partial(self._request, name) for name in ("drain", "release_unused")
        )

    @property
    def gpu(self) -> Gpu:
        """The GPU; waits until it has been opened.

        Raises:
            GpuUnavailable: if it cannot be used.
        """
        gpu: Gpu = self._opened.result()
        return gpu

    @property
    def database_budget(self) -> int:
        """Bytes of GPU memory that targets may use."""
        return self._settings.database_budget(self.gpu.free_bytes)

    @property
    def resident(self) -> bool:
        """True if the targets stay on the GPU, as far as is known."""
        return self.process.status.resident

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per stage so far."""
        return self.process.status.seconds

    def load(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Use these targets from now on."""
        return self._request("load", share_sequences(targets), part)

    def prepare(self, lengths: Sequence[int], many_pairs: bool) -> "Future[None]":
        """Compile all kernels for queries of these lengths, before the filter of later calls begins."""
        return self._request("prepare", list(lengths), many_pairs)

    def filter(
        self,
        queries: Sequence[QueryProfile],
        settings: SearchSettings,
        more_follow: bool,
        cancelled: threading.Event,
    ) -> "RemoteFilteredBatch":
        """Queue the filter of a batch; `drain` notifies the process of a cancellation."""
        number = next(self._batch_numbers)
        best = self._request("filter", number, list(queries), settings, more_follow)
        return RemoteFilteredBatch(self._request, number, best)

    def close(self) -> None:
        """End the process."""
        self.process.service.close()


class RemoteFilteredBatch(RemoteAlignmentBatch):
    """A batch that is filtered first."""

    def best(self) -> "Future[BestTargets]":
        """Return the result of the filter."""
        return self._started


class RemoteScoring:
    """A process that scores candidates; implements scored_batch.ScoringProcess. It ends with this object.

    Scoring takes as much time of an interpreter as everything else in a search with many queries, and begins
    with the import of numba and the loading of compiled kernels. Here, the GPU would wait for it.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._lock = service, threading.Lock()
        # those that the process knows, by number
        self._searches: list[tuple[TargetDatabase, ScoringRules]] = []

    def submit(self, batch: AlignedBatch, database: TargetDatabase, rules: ScoringRules) -> "Future[Scores]":
        """Score candidates.

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


class _SummedProgress:
    """Compilation progress, summed over all processes."""

    def __init__(self, processes: int, progress: CompileProgress) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._per_process = [(0, 0)] * processes

    def __call__(self, index: int, compiled: int, needed: int) -> None:
        """Update the progress of one process."""
        with self._lock:
            self._per_process[index] = compiled, needed
            self._progress(*map(sum, zip(*self._per_process, strict=True)))
