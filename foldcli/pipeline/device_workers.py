"""Predictions on several devices: a worker process for each, which all take targets from one queue.

Targets that do not fit into the memory of one device are predicted at the end by all of them together.
"""

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import torch
from torch import distributed

from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.model_files import ModelOrigin
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.background import run_concurrently
from foldcli.pipeline.device import NetworkMemory, choose_device
from foldcli.pipeline.identity import Job
from foldcli.pipeline.predictor import Predictor, RankPredictor
from foldcli.pipeline.settings import NetworkOptions, PredictSettings
from foldcli.pipeline.shared_arrays import SharedArrays
from foldcli.pipeline.target_run import TargetRun, measure_stage
from foldcli.pipeline.template_copies import TemplateCopier
from foldcli.pipeline.worker_pool import WorkerPool
from foldcli.progress import Progress, RunProgress
from model.errors import OutOfMemory
from model.parallel.communication import RankGroup
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import open_group
from model.prediction import Prediction

# a worker that ends so often is not started again
_MAX_ENDS = 2
# seconds in which several processes that predict together notice that one of them has failed
_BLAME_SECONDS = 2.0
_HOST = "127.0.0.1"


@dataclass(frozen=True, eq=False)
class JobResult:
    """The result of one job.

    Args:
        prediction: the prediction.
        origin: what its files say about it.
        cost: time and memory of the process that made it.
        facts: facts about the device for done.json.
    """

    prediction: Prediction
    origin: ModelOrigin
    cost: StageCost
    facts: dict[str, str | int]


class JobRunner(Protocol):
    """Runs the jobs of targets, one after the other."""

    @property
    def usable(self) -> bool:
        """False if no further jobs can be run."""
        ...

    @property
    def postpones(self) -> bool:
        """True if targets that do not fit into memory are run by several devices later."""
        ...

    def start(
        self, target: TargetRun, job: Job, sample: Any, progress: RunProgress
    ) -> Callable[[], JobResult]:
        """Start one job of a target.

        Args:
            target: the target.
            job: the job.
            sample: see `Predictor.sample`.
            progress: shows the passes.

        Returns:
            A function that waits for the result and returns it; any thread may call it, once.
        """
        ...


def start_job(
    predictor: "Predictor | TemplateCopier", name: str, job: Job, sample: Any, progress: Progress
) -> Callable[[], JobResult]:
    """Start one job with a predictor of this process; see `Predictor.start`.

    Raises:
        OutOfMemory: the target does not fit into memory.
    """
    predictor.memory.reset_peak()
    try:
        measured = measure_stage(predictor.stage)
        collect = predictor.start(name, job, sample, progress)
        facts = predictor.memory.facts()
        return lambda: JobResult(*collect(), measured(), facts)
    except torch.OutOfMemoryError as error:
        # only the text: the error's traceback would keep tensors
        message = str(error)
    raise OutOfMemory(predictor.memory.describe_shortage(message))


class LocalRunner:
    """The predictor of this process.

    Args:
        predictor: runs the jobs.
    """

    postpones = False

    def __init__(self, predictor: "Predictor | TemplateCopier") -> None:
        self._predictor = predictor
        self._failed = False
        self._last_end = 0.0

    @property
    def usable(self) -> bool:
        """False if this process has lost its GPU."""
        # looked for only after an error, because it waits for the GPU
        return not self._failed or self._predictor.memory.is_usable()

    def start(
        self, target: TargetRun, job: Job, sample: Any, progress: RunProgress
    ) -> Callable[[], JobResult]:
        """Start one job of a target; see `JobRunner`."""
        passes = progress.begin_job(target.name, target.facts["residues"], job.tag)
        with self._noticing_errors():
            collect = start_job(self._predictor, target.name, job, sample, passes)

        def finish() -> JobResult:
            with self._noticing_errors():
                result = collect()
            # the GPU worked on the job before until `_last_end`
            end = time.perf_counter()
            cost = replace(result.cost, seconds=min(result.cost.seconds, end - self._last_end))
            self._last_end = end
            return replace(result, cost=cost)

        return finish

    @contextmanager
    def _noticing_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._failed = True
            raise


@dataclass(frozen=True)
class WorkerSettings:
    """The settings from which a worker process makes its predictor.

    Args:
        sources: models in the order in which they run.
        predict: settings of the predictions.
        device: a torch device.
        max_memory: see `NetworkMemory`.
        threads: CPU threads.
        stall_seconds: see `model.parallel.session.open_group`.
        assignment: rank of the process if several predict together, else None.
        strict: see `NetworkMemory`.
    """

    sources: tuple[ParameterSource, ...]
    predict: PredictSettings
    device: str
    max_memory: int | None = None
    threads: int = 1
    stall_seconds: float = 600.0
    assignment: RankAssignment | None = None
    strict: bool = False

    def open(self) -> Predictor:
        """Make the predictor in the worker process."""
        torch.set_num_threads(self.threads)
        memory = self.memory()
        memory.limit()
        if self.assignment is None:
            return Predictor(list(self.sources), self.predict, memory)
        return RankPredictor(list(self.sources), self.predict, memory, self.join())

    def memory(self) -> NetworkMemory:
        """Return the memory of the device."""
        ranks = 1 if self.assignment is None else self.assignment.size
        return NetworkMemory(self.device, self.max_memory, ranks, self.strict)

    def join(self) -> RankGroup:
        """Join the other processes."""
        assignment = self.assignment
        assert assignment is not None
        if self.device.startswith("cuda"):
            torch.cuda.set_device(self.device)
        # at its end, a process does not wait for others, which may have failed
        atexit.register(os._exit, 0)
        store = distributed.TCPStore(assignment.address, assignment.port, is_master=False)
        return open_group(
            store, assignment.rank, assignment.size, self.device.partition(":")[0], self.stall_seconds
        )


def worker_settings(
    options: NetworkOptions, predictor: "Predictor | TemplateCopier", threads: int
) -> tuple[WorkerSettings, ...]:
    """Return the settings of a worker for each device; none if there is one device or no network.

    Args:
        options: options of the network.
        predictor: the predictor of this process.
        threads: CPU threads of all workers together.

    Raises:
        MissingError: one of the devices does not exist.
    """
    devices = options.devices
    if len(devices) < 2 or not isinstance(predictor, Predictor):
        return ()
    sources, own_threads = tuple(predictor.sources), max(1, threads // len(devices))
    return tuple(
        WorkerSettings(
            sources,
            predictor.settings,
            choose_device(device),
            options.max_memory,
            own_threads,
            options.rank_timeout,
        )
        for device in devices
    )


@cache
def _predictor(settings: WorkerSettings) -> Predictor:
    """Return the predictor of this worker process, whose networks stay loaded."""
    return settings.open()


class GpuLost(Exception):
    """An error after which a process cannot use its GPU any more; the message is that error's first line."""


def _run_task(task: tuple[WorkerSettings, str, Job, Any]) -> JobResult | None:
    """Run one job in a worker process; of several that predict together, the first returns the result."""
    settings, name, job, sample = task
    if isinstance(sample, SharedArrays):
        sample = sample.load()
    try:
        result = start_job(_predictor(settings), name, job, sample, lambda done, total: None)()
    except Exception as error:
        if settings.memory().is_usable():
            raise
        raise GpuLost(str(error).partition("\n")[0]) from error
    return result if settings.assignment is None or settings.assignment.rank == 0 else None


class DeviceWorker:
    """A worker process with a predictor on one device, or one for each of several that predict together.

    A process that is killed, crashes, or has lost its GPU (some CUDA errors leave a GPU unusable to a
    process) fails only the job that it was working on, and is replaced once.

    Args:
        settings: those of each process.
        prepare: called before the first job.
        postpones: leave targets that are not expected to fit to more devices.

    Attributes:
        postpones: as given.
    """

    def __init__(
        self,
        settings: Sequence[WorkerSettings],
        prepare: Callable[[], None] = lambda: None,
        postpones: bool = False,
    ) -> None:
        self._settings = [replace(each, strict=postpones) for each in settings]
        self._prepare, self.postpones = prepare, postpones
        self._devices = ", ".join(each.device for each in settings)
        self._ends, self._terminated = 0, False
        self._start()

    def _start(self) -> None:
        """Make new processes, which start with their first job."""
        self._pools = [WorkerPool(1) for _ in self._settings]
        if (size := len(self._settings)) > 1:
            self._store = distributed.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
            assignments = (
                RankAssignment(rank, size, rank, size, _HOST, self._store.port) for rank in range(size)
            )
            self._settings = [
                replace(each, assignment=assignment)
                for each, assignment in zip(self._settings, assignments, strict=True)
            ]

    @property
    def usable(self) -> bool:
        """False if processes have ended twice."""
        return self._ends < _MAX_ENDS

    def start(
        self, target: TargetRun, job: Job, sample: Any, progress: RunProgress
    ) -> Callable[[], JobResult]:
        """Run one job of a target in the processes, and wait for it; see `JobRunner`.

        Raises:
            ChildProcessError: a process has ended.
            OutOfMemory: the target does not fit into the memory of the devices.
        """
        self._prepare()
        progress.show(f"{target.name} ({target.facts['residues']} residues): {job.tag}, {self._devices}")
        calls = [
            pool.submit(_run_task, (settings, target.name, job, sample))
            for pool, settings in zip(self._pools, self._settings, strict=True)
        ]
        if any(call.exception() for call in wait(calls, return_when=FIRST_EXCEPTION).done):
            self._raise_error(calls)
        result = calls[0].result()
        assert result is not None
        progress.add_passes(target.name, result.prediction.num_recycles + 1)
        return lambda: result

    def _raise_error(self, calls: "list[Future[JobResult | None]]") -> None:
        """Raise the error of the process that has failed first, after replacing processes if necessary."""
        # the end of one process is an error in the others, which may be the first to notice
        failed = wait(calls, timeout=_BLAME_SECONDS if len(calls) > 1 else None).done
        errors = [(call.exception(), each.device) for call, each in zip(calls, self._settings, strict=True)
                  if call in failed]  # fmt: skip
        kinds = (ChildProcessError, GpuLost, OutOfMemory, Exception)
        error, device = next((e, d) for kind in kinds for e, d in errors if isinstance(e, kind))
        assert error is not None
        if self._terminated:
            raise error
        ended = isinstance(error, ChildProcessError | GpuLost)
        if len(calls) > 1 or isinstance(error, GpuLost):
            # others still wait for a process that has failed
            self._terminate_pools()
            self.close()
            self._start()
        if not ended:
            raise error
        self._ends += 1
        then = "it is started again" if self.usable else "it is not started again"
        logger.warning("the worker of %s has ended (%s); %s", self._devices, error, then)
        how = "lost its GPU" if isinstance(error, GpuLost) else "ended"
        raise ChildProcessError(f"the worker of {device} has {how}: {error}")

    def terminate(self) -> None:
        """End the processes at once; the job that they are working on fails."""
        self._terminated = True
        self._terminate_pools()

    def _terminate_pools(self) -> None:
        wait(run_concurrently([pool.terminate for pool in self._pools], len(self._pools)))

    def close(self) -> None:
        """End the processes, which must be idle."""
        for pool in self._pools:
            pool.close()
