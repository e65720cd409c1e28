"""The training loop of all networks: samples, gradients, optimiser, average, metrics, checkpoints, stops."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Generic, Protocol, TypeVar

import torch

from model.training.runtime.checkpoint import Progress, load, save, stored_progress
from model.training.runtime.parameters import MOMENTS, FlatParameters, adam_step
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import TrainingRunSettings
from model.training.runtime.step import GradientGuard, StepGradient, StepPlan, Terms
from msa.base.atomic import atomic_write, errors_name

METRICS = "metrics.jsonl"

Sample = TypeVar("Sample")
Scores = dict[str, dict[str, float]]


class TrainingTask(Protocol[Sample]):
    """The part of the training that each family of networks has for itself: samples, losses and validation.

    A sample is what one backward pass of one process reads: a micro-batch.
    """

    @property
    def settings(self) -> TrainingRunSettings:
        """The settings of the run."""

    @property
    def is_compiling(self) -> bool:
        """True while the current pass has to compile, which may take minutes."""

    def samples(self, step: int) -> Iterator[Sample]:
        """Yield this process's samples from a step on, without end; called before anything uses a GPU."""

    def build(self, is_new: bool) -> FlatParameters:
        """Build the network on the process's device, and return its parameters.

        Args:
            is_new: False if a checkpoint will replace the parameters.
        """

    def start_step(self, step: int) -> StepPlan:
        """Seed the random numbers of a step, counted from 0, and return what its passes depend on."""

    def backward(self, sample: Sample, plan: StepPlan, gradient: StepGradient) -> Terms:
        """Compute the losses of a sample and add their gradient; return the mean of each loss term."""

    def validate(self, step: int) -> Scores:
        """Score the network after a number of steps, with all processes; return the scores by set."""


@dataclass(frozen=True)
class StepReport:
    """The results of one optimiser step.

    Args:
        step: number of steps done, this one included.
        total_steps: number of steps of the run.
        terms: mean of each loss term over the samples, and their weighted sum as `loss`.
        gradient_norm: norm of the gradient before clipping; the mean of their norms if the gradients of
            micro-batches are clipped.
        skipped: True if the step changed nothing, because its gradient was not finite or a spike.
        learning_rate: learning rate of the step.
        seconds: wall time of the step.
        waited: part of `seconds` spent waiting for samples.
        samples_per_second: speed of all processes together.
        recycles: number of passes before the one that was trained; None if each sample has its own.
        validation: scores on held-out samples, by set, if a validation followed the step.
    """

    step: int
    total_steps: int
    terms: dict[str, float]
    gradient_norm: float
    skipped: bool
    learning_rate: float
    seconds: float
    waited: float
    samples_per_second: float
    recycles: int | None
    validation: Scores | None = None


class Trainer(Generic[Sample]):
    """A training run.

    Each step depends on the settings, the samples and its number alone, so that a run continues from a
    checkpoint bit for bit on the same kind of device.

    Args:
        task: the samples, the network and its losses.
        run: folder of checkpoints and metrics, or None to write nothing.
        processes: the processes that train together.
        resume: continue from the checkpoint in the folder, if there is one.

    Raises:
        ConfigError: the network cannot be trained with these settings.
        DataError: the checkpoint is damaged, or belongs to another network.

    Attributes:
        flat: the parameters.
        moments: the moments of Adam by name, as `flat.values`.
        progress: the progress of the run.
    """

    def __init__(
        self,
        task: TrainingTask[Sample],
        run: Path | None,
        processes: TrainingProcesses,
        resume: bool = False,
    ) -> None:
        self.task, self.settings, self.run, self.processes = task, task.settings, run, processes
        stored = run if resume else None
        start = 0 if stored is None else stored_progress(stored).step
        # worker processes are started before anything uses a GPU
        self._samples = task.samples(start)
        self._next_sample = next(self._samples)
        if processes.device.type == "cuda":
            torch.cuda.set_device(processes.device)
            # matrix products in float32; the geometry of a structure module is elementwise and unaffected
            torch.set_float32_matmul_precision("high")
        self.flat = task.build(is_new=not start)
        self.moments = {name: torch.zeros_like(self.flat.values) for name in MOMENTS}
        self.progress = (
            Progress() if stored is None else load(stored, self.flat, self.moments, self.settings.network)
        )
        self._gradient = StepGradient(self.flat, self.settings, processes)
        self._guard = self._restored_guard()
        self._state_lock = Lock()  # held while parameters and progress change, or are written
        self._saved_step = self.progress.step
        self._stop = self._is_late = False

    def request_stop(self) -> None:
        """Stop after the current step; signal handlers may call it."""
        self._stop = True

    def train(self, max_seconds: float | None = None, max_steps: int | None = None) -> Iterator[StepReport]:
        """Train until the last step, a limit or a request to stop; write checkpoints, also at the end.

        Args:
            max_seconds: stop after the first step that ends this long after the call.
            max_steps: stop after this many steps of this call.

        Yields:
            A report after each step, on every process.

        Raises:
            TrainingDiverged: too many consecutive steps were skipped.
        """
        begin, first, settings = time.monotonic(), self.progress, self.settings
        is_last = self._is_late = False
        self._gradient.forget_stop()
        while self.progress.step < settings.total_steps and not (is_last or self._stopping):
            report = self._step()
            seconds = time.monotonic() - begin
            self.progress = replace(self.progress, seconds=first.seconds + seconds)
            self._write_metrics({"kind": "step", **asdict(report)})
            self._is_late = max_seconds is not None and seconds > max_seconds
            is_last = max_steps is not None and report.step - first.step >= max_steps
            if self._is_due(settings.validate_every):
                report = replace(report, validation=self._validate())
            yield report
            if self._is_due(settings.checkpoint_every) and not (is_last or self._stopping):
                self.save()
        self.save()

    def _step(self) -> StepReport:
        """Make one step: gradients of micro-batches, their sum over the processes, Adam, the average."""
        begin, waited = time.monotonic(), 0.0
        settings, progress = self.settings, self.progress
        step = progress.step
        plan = self.task.start_step(step)
        self._gradient.reset(plan.micro_batches)
        sums: dict[str, torch.Tensor] = {}
        for _ in range(plan.micro_batches):
            terms = self.task.backward(self._next_sample, plan, self._gradient)
            for name, value in terms.items():
                value = value / plan.micro_batches
                sums[name] = sums[name] + value if name in sums else value
            # fetch the next sample while the GPU works
            fetch = time.monotonic()
            self._next_sample = next(self._samples)
            waited += time.monotonic() - fetch
        norm = self._gradient.reduce(self._stop or self._is_late)
        rate = settings.rate(step, progress.moments_from)
        skipped = self._guard.skips(norm, step, plan.phase)
        if not skipped:
            self._gradient.clip(norm)
        with self._state_lock:
            if not skipped:
                adam_step(self.flat, self.moments, rate, step + 1 - progress.moments_from, settings.adam)
                self.flat.update_average(settings.adam.ema_decay, step + 1)
            self.progress = replace(
                progress,
                step=step + 1,
                samples=progress.samples + settings.batch,
                norms=self._guard.norms,
                skipped=self._guard.skipped,
            )
        count = self.processes.count
        means = self.processes.sum({name: float(value) / count for name, value in sums.items()})
        seconds = time.monotonic() - begin
        return StepReport(
            step=step + 1,
            total_steps=settings.total_steps,
            terms=means,
            gradient_norm=norm,
            skipped=skipped,
            learning_rate=rate,
            seconds=seconds,
            waited=waited,
            samples_per_second=settings.batch / seconds,
            recycles=plan.recycles,
        )

    def _restored_guard(self) -> GradientGuard:
        """Return the guard as the last step of the checkpoint has left it."""
        progress = self.progress
        phase = self.task.start_step(progress.step - 1).phase if progress.step else None
        return GradientGuard(self.settings.adam, progress.norms, progress.skipped, phase)

    def _validate(self) -> Scores | None:
        """Score the averaged parameters; return and write the scores, or None without held-out sets."""
        begin, step = time.monotonic(), self.progress.step
        with self._state_lock, self.flat.using_average():
            scores = self.task.validate(step)
        if not scores:
            return None
        seconds = time.monotonic() - begin
        self._write_metrics({"kind": "validation", "step": step, "seconds": seconds, **scores})
        return scores

    def save(self, wait: float = -1.0) -> None:
        """Write a checkpoint of the last step that has ended, from any thread, unless there is one.

        Args:
            wait: seconds after which nothing is written while an update or a validation uses the parameters;
                -1 for no limit.
        """
        if self.run is not None and self.processes.rank == 0 and self._state_lock.acquire(timeout=wait):
            try:
                if self.progress.step != self._saved_step:
                    save(self.run, self.flat, self.moments, self.settings.network, self.progress)
                    self._saved_step = self.progress.step
            finally:
                self._state_lock.release()

    @property
    def _stopping(self) -> bool:
        """True if a process had requested a stop by the last exchange; a single process needs no exchange."""
        if self.processes.count == 1:
            return self._stop or self._is_late
        return self._gradient.stop_requested

    def _is_due(self, every: int) -> bool:
        return bool(every) and self.progress.step % every == 0

    def _write_metrics(self, entry: dict[str, object]) -> None:
        if self.run is not None and self.processes.rank == 0:
            path = self.run / METRICS
            with errors_name(path), path.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")


def drop_metrics_after(run: Path, step: int) -> int:
    """Remove the metrics of steps that will be trained again, as after a run that was killed.

    Args:
        run: folder of the run.
        step: last step whose metrics are kept.

    Returns:
        The number of lines removed, damaged ones included.
    """
    path = run / METRICS
    if not path.exists():
        return 0
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _step_of(line) <= step]
    if len(kept) < len(lines):
        with atomic_write(path, "wb") as stream:
            stream.writelines(kept)
    return len(lines) - len(kept)


def _step_of(line: bytes) -> float:
    """Return the step of a line of metrics; infinity for a damaged one, as a kill may leave."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return math.inf
