"""Jobs in this process: their start, their result, and the runner of one device."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from foldcli.families.registry import family_of
from foldcli.families.settings import Job
from foldcli.outputs.done import StageCost
from foldcli.outputs.facts import Facts
from foldcli.outputs.target import measure_stage
from foldcli.pipeline.network.predictor import PredictedSample, Predictor
from foldcli.progress import Progress
from model.errors import OutOfMemory


@dataclass(frozen=True, eq=False)
class JobResult:
    """The result of one job.

    Args:
        cost: time and memory of the process that made it.
        facts: those about the device.
        passes: number of passes that were counted; see `JobSettings.num_passes`.
    """

    models: tuple[PredictedSample, ...]
    cost: StageCost
    facts: Facts
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

    @property
    def detail(self) -> str:
        """The text of the progress bar for a job that has been started."""
        ...

    def start(self, name: str, job: Job, sample: object, progress: Progress) -> Callable[[], JobResult]:
        """Start one job of a target.

        Returns:
            A function that waits for the result and returns it; any thread may call it, once.

        Raises:
            OutOfMemory: the target does not fit into memory.
        """
        ...


class LocalRunner:
    """The predictor of this process; a job may be started before the last one is collected."""

    postpones = False
    detail = "first pass"

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._last_end = 0.0
        self._failed = False

    @property
    def usable(self) -> bool:
        """False if this process has lost its GPU."""
        # looked for only after an error, because it waits for the GPU
        return not self._failed or self.predictor.memory.is_usable()

    def start(self, name: str, job: Job, sample: object, progress: Progress) -> Callable[[], JobResult]:
        """Start one job; see `JobRunner`."""
        predictor, passes = self.predictor, 0

        def count(done: int, total: int | None) -> None:
            nonlocal passes
            passes = done
            progress(done, total)

        def finish() -> JobResult:
            with self._noticing_errors():
                models, cost, end = collect(), measured(), time.perf_counter()
                # the device worked on the job before until `_last_end`
                cost = replace(cost, seconds=min(cost.seconds, end - self._last_end))
                self._last_end = end
                return JobResult(models, cost, facts, passes)

        with self._noticing_errors():
            predictor.memory.reset_peak()
            try:
                measured = measure_stage(family_of(job.source).stage)
                collect = predictor.start(name, job, sample, count)
                facts = predictor.memory.facts()
                return finish
            except torch.OutOfMemoryError as error:
                # only the text: the error's traceback would keep tensors
                message = str(error)
            raise OutOfMemory(predictor.memory.describe_shortage(message))

    @contextmanager
    def _noticing_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._failed = True
            raise
