"""Predictions on several devices: a worker process for each, which all take targets from one queue."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import cache, partial
from threading import Event, Lock
from typing import Any, Protocol

import numpy as np
import torch

from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.background import run_concurrently
from foldcli.pipeline.device import NetworkMemory, choose_device
from foldcli.pipeline.identity import Job
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.settings import NetworkOptions, PredictSettings
from foldcli.pipeline.shared_arrays import SharedArrays
from foldcli.pipeline.target_run import TargetRun, measured_stage
from foldcli.pipeline.template_copies import TemplateCopier
from foldcli.pipeline.worker_pool import WorkerPool
from foldcli.progress import Progress, RunProgress
from model.prediction import Prediction
from msa.errors import MissingError

# a worker that ends so often is not started again
_MAX_ENDS = 2
# seconds that the threads of interrupted workers have to end
_GRACE_SECONDS = 15.0


@dataclass(frozen=True, eq=False)
class JobResult:
    """The result of one job.

    Args:
        prediction: the prediction.
        cost: time and memory of the process that made it.
        facts: facts about the device for done.json.
    """

    prediction: Prediction
    cost: StageCost
    facts: dict[str, str | int]


class JobRunner(Protocol):
    """Runs the jobs of targets, one after the other."""

    @property
    def usable(self) -> bool:
        """False if no further jobs can be run."""
        ...

    def run(self, target: TargetRun, job: Job, sample: Any, progress: RunProgress) -> JobResult:
        """Run one job of a target.

        Args:
            target: the target.
            job: the job.
            sample: see `Predictor.sample`.
            progress: shows the passes.
        """
        ...


def run_job(
    predictor: "Predictor | TemplateCopier", name: str, job: Job, sample: Any, progress: Progress
) -> JobResult:
    """Run one job with a predictor of this process."""
    predictor.memory.reset_peak()
    with measured_stage(predictor.stage) as costs:
        prediction = predictor.run(name, job, sample, progress)
    return JobResult(prediction, costs[0], predictor.memory.facts())


@dataclass(frozen=True)
class LocalRunner:
    """The predictor of this process.

    Args:
        predictor: runs the jobs.
    """

    predictor: "Predictor | TemplateCopier"
    usable = True

    def run(self, target: TargetRun, job: Job, sample: Any, progress: RunProgress) -> JobResult:
        """Run one job of a target; see `JobRunner`."""
        progress.begin_job(target.name, target.facts["residues"], job.tag)
        return run_job(self.predictor, target.name, job, sample, progress.pass_done)


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker needs to make its predictor.

    Args:
        sources: models in the order in which they run.
        predict: settings of the predictions.
        device: a torch device.
        max_memory: see `NetworkMemory`.
        threads: CPU threads.
    """

    sources: tuple[ParameterSource, ...]
    predict: PredictSettings
    device: str
    max_memory: int | None = None
    threads: int = 1

    def open(self) -> Predictor:
        """Make the predictor in the worker."""
        torch.set_num_threads(self.threads)
        memory = NetworkMemory(self.device, self.max_memory)
        memory.limit()
        return Predictor(list(self.sources), self.predict, memory)


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
        WorkerSettings(sources, predictor.settings, choose_device(device), options.max_memory, own_threads)
        for device in devices
    )


def share_sample(sample: dict[str, np.ndarray]) -> "SharedArrays | dict[str, np.ndarray]":
    """Return a sample in the form in which workers get it; without memory to share, as it is."""
    try:
        return SharedArrays(sample)
    except OSError as error:
        logger.debug("samples are copied to the workers: %s", error)
        return sample


@cache
def _predictor(settings: WorkerSettings) -> Predictor:
    """Return the predictor of this worker process, whose networks stay loaded."""
    return settings.open()


def _run_task(task: tuple[WorkerSettings, str, Job, Any]) -> JobResult:
    """Run one job in a worker process."""
    settings, name, job, sample = task
    if isinstance(sample, SharedArrays):
        sample = sample.load()
    return run_job(_predictor(settings), name, job, sample, lambda done, total: None)


class DeviceWorker:
    """A worker process with a predictor on one device.

    A process that is killed, crashes, or has lost its GPU (a CUDA error leaves the GPU unusable to a
    process) fails only the job that it was working on, and is replaced once.

    Args:
        settings: see WorkerSettings.
        prepare: called before the first job.
    """

    def __init__(self, settings: WorkerSettings, prepare: Callable[[], None] = lambda: None) -> None:
        self._settings, self._prepare = settings, prepare
        self._pool = WorkerPool(1)
        self._ends, self._terminated = 0, False

    @property
    def usable(self) -> bool:
        """False if the process has ended twice."""
        return self._ends < _MAX_ENDS

    def run(self, target: TargetRun, job: Job, sample: Any, progress: RunProgress) -> JobResult:
        """Run one job of a target in the process; see `JobRunner`.

        Raises:
            ChildProcessError: the process has ended.
        """
        self._prepare()
        device = self._settings.device
        progress.show(f"{target.name} ({target.facts['residues']} residues): {job.tag}, {device}")
        try:
            result = self._pool.submit(_run_task, (self._settings, target.name, job, sample)).result()
        except ChildProcessError as error:
            if self._terminated:
                raise
            self._count_end(str(error))
            raise ChildProcessError(f"the worker of {device} has ended: {error}") from None
        except Exception as error:
            if "CUDA error" not in str(error):
                raise
            self._pool.terminate()
            self._pool.close()
            self._pool = WorkerPool(1)
            reason = str(error).splitlines()[0]
            self._count_end(reason)
            raise ChildProcessError(f"the worker of {device} has lost its GPU: {reason}") from None
        progress.add_passes(target.name, result.prediction.num_recycles + 1)
        return result

    def _count_end(self, reason: str) -> None:
        self._ends += 1
        then = "it is started again" if self.usable else "it is not started again, other workers continue"
        logger.warning("the worker of %s has ended (%s); %s", self._settings.device, reason, then)

    def terminate(self) -> None:
        """End the process at once; the job that it is working on fails."""
        self._terminated = True
        self._pool.terminate()

    def close(self) -> None:
        """End the process, which must be idle."""
        self._pool.close()


class SharedTargets:
    """Targets that several threads take from one iterator; iterating takes the next ones.

    Args:
        targets: the targets, in the order in which they are taken.
    """

    def __init__(self, targets: Iterator[TargetRun]) -> None:
        self._targets, self._lock = targets, Lock()
        self._returned: deque[TargetRun] = deque()

    def __iter__(self) -> Iterator[TargetRun]:
        while True:
            with self._lock:
                target = self._returned.popleft() if self._returned else next(self._targets, None)
            if target is None:
                return
            yield target

    def give_back(self, target: TargetRun) -> None:
        """Return a target that was taken, so that another thread takes it."""
        with self._lock:
            self._returned.append(target)

    def __bool__(self) -> bool:
        """Return True if targets have been given back and not taken again."""
        return bool(self._returned)


def share_targets(
    workers: Sequence[DeviceWorker],
    targets: SharedTargets,
    run: Callable[[DeviceWorker, SharedTargets], None],
    stop: Event,
) -> None:
    """Run all targets on several workers, each of which takes the next target when it is free.

    Args:
        workers: ended when the function returns.
        targets: the targets.
        run: called in a thread for each worker; runs targets until there are none, or the worker is not
            usable, and gives back those that it has taken in vain.
        stop: set if the run is interrupted.

    Raises:
        MissingError: there are targets left, and no worker is usable.
    """
    try:
        while True:
            usable = [worker for worker in workers if worker.usable]
            if not usable:
                raise MissingError(
                    "the workers of all devices have ended twice",
                    "See the messages above; run the same command again to continue.",
                )
            threads = run_concurrently([partial(run, worker, targets) for worker in usable], len(usable))
            try:
                for thread in threads:
                    thread.result()
            except BaseException:
                stop.set()
                for worker in workers:
                    worker.terminate()
                wait(threads, timeout=_GRACE_SECONDS)
                raise
            if not targets:
                return
    finally:
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.close()
