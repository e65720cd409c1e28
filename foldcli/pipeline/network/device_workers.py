"""Predictions on several devices: a worker process for each, which all take targets from one queue.

A worker starts and collects jobs as the process of a run on one GPU does (`LocalRunner`): while the last pass
of one job runs on its device, it launches the first pass of the next one.

Targets that do not fit into the memory of one device are predicted at the end by all of them together.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import distributed

from foldcli.families.settings import Job, JobSettings, NetworkOptions, Source
from foldcli.logs import logger
from foldcli.pipeline.network.device import NetworkMemory, choose_device
from foldcli.pipeline.network.job_runners import JobResult, LocalRunner
from foldcli.pipeline.network.predictor import Predictor, RankPredictor
from foldcli.pipeline.network.preloading import take_file
from foldcli.pipeline.processes.background import run_in_background
from foldcli.pipeline.processes.shared_arrays import load_arrays
from foldcli.pipeline.processes.worker_pool import WORKER_OPTIONS
from foldcli.progress import Progress
from model.errors import OutOfMemory
from model.parallel.communication import RankGroup
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import open_group
from msa.base.services.pool import CALLS
from msa.base.services.service import Service, close_all

# a worker that ends so often is not started again
_MAX_ENDS = 2
# seconds in which several processes that predict together notice that one of them has failed
_BLAME_SECONDS = 2.0
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class WorkerSettings:
    """The settings from which a worker process makes its predictor.

    Args:
        sources: models in the order in which they run.
        threads: CPU threads.
        stall_seconds: see `model.parallel.session.open_group`.
        assignment: rank of the process if several predict together, else None.
    """

    sources: tuple[Source, ...]
    predict: JobSettings
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
        arrays = take_file(self.sources[0])
        if self.assignment is None:
            return Predictor(self.sources, self.predict, memory, arrays)
        return RankPredictor(self.sources, self.predict, memory, self.join(), arrays)

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
        store = distributed.TCPStore(assignment.address, assignment.port, is_master=False)
        return open_group(
            store, assignment.rank, assignment.size, self.device.partition(":")[0], self.stall_seconds
        )


def worker_settings(
    options: NetworkOptions, predictor: Predictor, threads: int
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
    if len(devices) < 2 or not predictor.family.has_network:
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


class _Worker:
    """The jobs of a worker process, whose networks stay loaded."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.runner = LocalRunner(settings.open())
        self.results = ThreadPoolExecutor(1)
        # the result of the job that was started last
        self.result: Future[JobResult | None] | None = None


# the jobs of this worker process
_worker = cache(_Worker)


def _warm_up(settings: WorkerSettings) -> None:
    """Begin to load the network of the first job in a worker process, and to prepare its GPU."""
    predictor = _worker(settings).runner.predictor
    predictor.warm_up(predictor.sources[0])


class GpuLost(Exception):
    """An error after which a process cannot use its GPU any more; the message is that error's first line."""


@contextmanager
def _noticing_lost_gpu(settings: WorkerSettings) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if settings.memory().is_usable():
            raise
        raise GpuLost(str(error).partition("\n")[0]) from error


def _start_job(settings: WorkerSettings, name: str, job: Job, sample: object) -> None:
    sample = load_arrays(sample)
    with _noticing_lost_gpu(settings):
        worker = _worker(settings)
        worker.result = None
        collect = worker.runner.start(name, job, sample, lambda done, total: None)

    def finish() -> JobResult | None:
        with _noticing_lost_gpu(settings):
            result = collect()
        return result if settings.assignment is None or settings.assignment.rank == 0 else None

    worker.result = worker.results.submit(finish)


def _job_result(settings: WorkerSettings) -> "Future[JobResult | None] | None":
    """Return the result of the job that was started last; of several processes, the first returns it."""
    return _worker(settings).result


class JobInterrupted(Exception):
    """The error of a job whose worker ended because of another one; it can be run again."""


class DeviceWorker:
    """A worker process with a predictor on one device, or one for each of several that predict together.

    A single process is prepared in the background, and takes the next job as soon as the passes of the last
    one are queued on its device.

    A process that is killed, crashes, or has lost its GPU (some CUDA errors leave a GPU unusable to a
    process) fails only the job that it was working on, and is replaced once.

    Args:
        prepare: called before the processes use the network's kernels.
        postpones: leave targets that are not expected to fit to more devices.
        services: a service for each of `settings`, if they have been started already.
    """

    def __init__(
        self,
        settings: Sequence[WorkerSettings],
        prepare: Callable[[], None] = lambda: None,
        postpones: bool = False,
        services: Sequence[Service] = (),
    ) -> None:
        self._settings = [replace(each, strict=postpones) for each in settings]
        self._prepare, self.postpones = prepare, postpones
        self.detail = ", ".join(each.device for each in settings)
        self._ends, self._terminated = 0, False
        # number of jobs that were started
        self._jobs = 0
        # two threads handle errors: the one that starts jobs, and the one that collects results
        self._lock = Lock()
        self._start(services)
        self._warm_up = run_in_background(self._request_warm_up)

    def _start(self, services: Sequence[Service] = ()) -> None:
        """Use these processes, or start new ones."""
        self._services = list(services) or [Service(CALLS, **WORKER_OPTIONS) for _ in self._settings]
        if (size := len(self._settings)) > 1:
            self._store = distributed.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
            assignments = (
                RankAssignment(rank, size, rank, size, _HOST, self._store.port) for rank in range(size)
            )
            self._settings = [
                replace(each, assignment=assignment)
                for each, assignment in zip(self._settings, assignments, strict=True)
            ]

    def _request_warm_up(self) -> None:
        """Make a single process prepare its device; several run each pass together."""
        self._prepare()
        if len(self._settings) == 1:
            # errors are ignored here; the first job reports them
            self._services[0].request("call", _warm_up, self._settings[0])

    @property
    def usable(self) -> bool:
        """False if processes have ended twice."""
        return self._ends < _MAX_ENDS

    def start(self, name: str, job: Job, sample: object, progress: Progress) -> Callable[[], JobResult]:
        """Start one job of a target in the processes; see `JobRunner`. Several processes also finish it.

        Both this and the returned function raise these errors.

        Raises:
            ChildProcessError: a process has ended.
            JobInterrupted: a process has ended because of another job.
            OutOfMemory: the target does not fit into the memory of the devices.
        """
        self._prepare()
        wait([self._warm_up])
        with self._lock:
            if not self._services and not self._terminated:
                raise JobInterrupted(f"the worker of {self.detail} has ended because of another job")
            self._jobs += 1
            number, services = self._jobs, self._services
            started: dict[Future[Any], str] = {}
            results: dict[Future[Any], str] = {}
            for service, settings in zip(services, self._settings, strict=True):
                starting = service.request("call", _start_job, settings, name, job, sample)
                started[starting] = settings.device
                results[service.request("call", _job_result, settings)] = settings.device
        self._wait(number, services, started if len(started) == 1 else started | results)

        def collect() -> JobResult:
            self._wait(number, services, results)
            result = next(iter(results)).result()
            assert result is not None
            progress(result.passes, None)
            return result

        return collect

    def _wait(self, number: int, services: list[Service], answers: "dict[Future[Any], str]") -> None:
        """Wait for answers; raise the error of the process that has failed first."""
        if not any(answer.exception() for answer in wait(answers, return_when=FIRST_EXCEPTION).done):
            return
        # the end of one process is an error in the others, which may be the first to notice
        failed = wait(answers, timeout=_BLAME_SECONDS if len(services) > 1 else None).done
        errors = [(answer.exception(), device) for answer, device in answers.items() if answer in failed]
        kinds = (ChildProcessError, GpuLost, OutOfMemory, Exception)
        error, device = next((e, d) for kind in kinds for e, d in errors if isinstance(e, kind))
        assert error is not None
        with self._lock:
            self._handle_error(number, services, error, device)

    def _handle_error(self, number: int, services: list[Service], error: BaseException, device: str) -> None:
        """Raise the error of a job in these processes, after replacing them if necessary."""
        if self._terminated:
            raise error
        ended, replaced = isinstance(error, ChildProcessError | GpuLost), services is not self._services
        # a process that has ended was working on the job that it started last
        is_last = number == self._jobs or isinstance(error, GpuLost)
        if ended and (replaced or not is_last):
            raise JobInterrupted(f"the worker of {device} has ended because of another job: {error}")
        self._ends += ended
        if (len(services) > 1 or ended) and not replaced:
            # others still wait for a process that has failed
            self.close()
            self._services = []
            if self.usable:
                try:
                    self._start()
                except Exception:
                    self._ends = _MAX_ENDS
                    raise
        if not ended:
            raise error
        then = "it is started again" if self.usable else "it is not started again"
        logger.warning("the worker of %s has ended (%s); %s", self.detail, error, then)
        how = "lost its GPU" if isinstance(error, GpuLost) else "ended"
        raise ChildProcessError(f"the worker of {device} has {how}: {error}")

    def terminate(self) -> None:
        """End the processes at once; the jobs that they are working on fail."""
        self._terminated = True
        self.close()

    def close(self) -> None:
        """End the processes."""
        close_all(self._services)
