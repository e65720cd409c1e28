"""Jobs in this process: their start, their result, and the runner of one device."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from foldcli.families.registry import family_of
from foldcli.families.settings import Job
from foldcli.outputs.done import StageCost
from foldcli.pipeline.network.predictor import PredictedSample, Predictor
from foldcli.pipeline.targets.target import TargetRun, measure_stage
from foldcli.progress import Progress, RunProgress
from model.errors import OutOfMemory


@dataclass(frozen=True, eq=False)
class JobResult:
    """The result of one job.

    Args:
        models: the job's models, one for each of its tags.
        cost: time and memory of the process that made it.
        facts: facts about the device for done.json.
        passes: number of passes that were counted; see `JobSettings.num_passes`.
    """

    models: tuple[PredictedSample, ...]
    cost: StageCost
    facts: dict[str, str | int]
    passes: int


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
            sample: see `Family.sample`.
            progress: shows the passes.

        Returns:
            A function that waits for the result and returns it; any thread may call it, once.
        """
        ...


def size_of(target: TargetRun, job: Job) -> str:
    """Return the size of a target in words."""
    return f"{target.facts['residues']} {family_of(job.source).size_unit}"


class JobStarter:
    """Starts jobs with a predictor of this process; a job may be started before the last one is collected.

    Args:
        predictor: runs the jobs.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._last_end = 0.0

    def start(self, name: str, job: Job, sample: Any, progress: Progress) -> Callable[[], JobResult]:
        """Start one job; see `Predictor.start`.

        Raises:
            OutOfMemory: the target does not fit into memory.
        """
        predictor, passes = self.predictor, 0

        def count(done: int, total: int | None) -> None:
            nonlocal passes
            passes = done
            progress(done, total)

        predictor.memory.reset_peak()
        try:
            measured = measure_stage(family_of(job.source).stage)
            collect = predictor.start(name, job, sample, count)
            facts = predictor.memory.facts()
        except torch.OutOfMemoryError as error:
            # only the text: the error's traceback would keep tensors
            message = str(error)
        else:
            return lambda: self._finish(JobResult(collect(), measured(), facts, passes))
        raise OutOfMemory(predictor.memory.describe_shortage(message))

    def _finish(self, result: JobResult) -> JobResult:
        # the device worked on the job before until `_last_end`
        end = time.perf_counter()
        cost = replace(result.cost, seconds=min(result.cost.seconds, end - self._last_end))
        self._last_end = end
        return replace(result, cost=cost)


class LocalRunner:
    """The predictor of this process.

    Args:
        predictor: runs the jobs.
    """

    postpones = False

    def __init__(self, predictor: Predictor) -> None:
        self._starter = JobStarter(predictor)
        self._failed = False

    @property
    def usable(self) -> bool:
        """False if this process has lost its GPU."""
        # looked for only after an error, because it waits for the GPU
        return not self._failed or self._starter.predictor.memory.is_usable()

    def start(
        self, target: TargetRun, job: Job, sample: Any, progress: RunProgress
    ) -> Callable[[], JobResult]:
        """Start one job of a target; see `JobRunner`."""
        passes = progress.begin_job(target.name, size_of(target, job), job.tag)
        with self._noticing_errors():
            collect = self._starter.start(target.name, job, sample, passes)

        def finish() -> JobResult:
            with self._noticing_errors():
                return collect()

        return finish

    @contextmanager
    def _noticing_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._failed = True
            raise
