"""Predictions in a worker process for each of several devices, which take the next target from one queue."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from threading import Event, Lock

from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.network.device_workers import DeviceWorker
from foldcli.pipeline.processes.background import run_concurrently
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.runs.network_stage import NetworkStage
from foldcli.pipeline.runs.preparation import JobPreparation, PreparedTarget, TargetStep
from foldcli.pipeline.runs.state import RunState
from msa.base.errors import MissingError

# seconds that the threads of interrupted workers have to end
_GRACE_SECONDS = 15.0


class SharedTargets:
    """Targets that several threads take, prepared ahead for all of them; each takes one when it needs it.

    Args:
        targets: the targets.
        prepare: returns an iterator of prepared targets; called again at its end, because targets may have
            been given back. It takes targets in one thread.
    """

    def __init__(
        self,
        targets: Iterator[TargetRun],
        prepare: Callable[[Iterator[TargetRun]], Iterator[PreparedTarget]],
    ) -> None:
        self._targets, self._prepare, self._lock = targets, prepare, Lock()
        self._returned: deque[TargetRun] = deque()
        self._prepared = prepare(self._unprepared())

    def __iter__(self) -> Iterator[PreparedTarget]:
        while True:
            with self._lock:
                if (item := next(self._prepared, None)) is None:
                    self._prepared = self._prepare(self._unprepared())
                    item = next(self._prepared, None)
            if item is None:
                return
            yield item
            del item

    def _unprepared(self) -> Iterator[TargetRun]:
        """Yield the targets that are not taken; those that were given back come first."""
        while True:
            target = self._returned.popleft() if self._returned else next(self._targets, None)
            if target is None:
                return
            yield target

    def give_back(self, target: TargetRun) -> None:
        """Return a target that was taken, so that another thread takes it."""
        self._returned.append(target)

    def __bool__(self) -> bool:
        """Return True if targets have been given back and not taken again."""
        return bool(self._returned)


def no_usable_worker() -> MissingError:
    """Return the error of a run that has targets and no usable worker left."""
    return MissingError(
        "the workers of all devices have ended twice",
        "See the messages above; run the same command again to continue.",
    )


def share_targets(
    workers: Sequence[DeviceWorker],
    targets: SharedTargets,
    run: Callable[[DeviceWorker], None],
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
                raise no_usable_worker()
            threads = run_concurrently([partial(run, worker) for worker in usable], len(usable))
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
        for closing in run_concurrently([worker.close for worker in workers], len(workers)):
            with contextlib.suppress(OSError):
                closing.result()


def predict_in_workers(
    state: RunState,
    preparation: JobPreparation,
    targets: Iterator[TargetRun],
    start_results: Callable[[], ResultStage],
    context: AbstractContextManager[None],
) -> None:
    """Predict in worker processes; at the end, all of them together predict what did not fit one.

    Args:
        state: the run.
        preparation: prepares the jobs.
        targets: the unfinished targets.
        start_results: starts the result stage.
        context: entered while threads of this process hand the jobs to the workers.

    Raises:
        MissingError: there are targets left, and no worker is usable.
    """
    settings, predictor = state.settings, state.settings.predictor
    if not settings.startup.processes.has_work:
        # processes are prepared only if there is a target
        if (first := next(targets, None)) is None:
            return
        targets = chain([first], targets)
    groups, can_join = settings.device_groups()[: len(state.targets)], predictor.family.unshared is None
    services = iter(settings.startup.worker_services)
    workers = [
        DeviceWorker(group, predictor.wait_for_kernels, can_join, list(islice(services, len(group))))
        for group in groups
    ]
    with start_results() as results, context:
        _run_workers(state, preparation, results, workers, targets)
        if postponed := [t for t in state.targets if t.status is TargetStatus.POSTPONED]:
            for target in postponed:
                target.set_status(TargetStatus.OPEN)
            joint_worker = DeviceWorker(settings.workers, predictor.wait_for_kernels)
            _run_workers(state, preparation, results, [joint_worker], iter(postponed))


def _run_workers(
    state: RunState,
    preparation: JobPreparation,
    results: ResultStage,
    workers: list[DeviceWorker],
    targets: Iterator[TargetRun],
) -> None:
    """Run targets on workers, for all of which they are prepared ahead together.

    A worker gets the next target when it can start it. At the end of the run, none has a target waiting while
    another one is idle.
    """
    count = len(workers)
    shared = SharedTargets(targets, lambda remaining: preparation.prepare_for_workers(remaining, count))

    def run_worker(worker: DeviceWorker) -> None:
        """Run targets on one worker until there are none left, or the worker is not usable."""
        taken_targets: list[TargetRun] = []

        def work() -> Iterator[TargetStep]:
            for target, steps in shared:
                taken_targets.append(target)
                yield from steps

        NetworkStage(state, results, worker).run(work())
        if state.stop.is_set():
            return
        for target in taken_targets:
            if target.status in (TargetStatus.INTERRUPTED, TargetStatus.OPEN):
                target.set_status(TargetStatus.OPEN)
                state.locks.release(target.files.lock_path)
                shared.give_back(target)

    share_targets(workers, shared, run_worker, state.stop)
    if not any(worker.usable for worker in workers) and next(iter(shared), None) is not None:
        raise no_usable_worker()
