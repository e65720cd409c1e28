"""The training loop: steps over micro-batches on one or several GPUs, checkpoints, validation."""

import contextlib
import json
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
import torch

from model.alphafold2.network import AlphaFold
from model.errors import ConfigError, TrainingDiverged
from model.layers.kernels import select_kernels
from model.training.alphafold2.features import load_tables, make_targets, network_features
from model.training.alphafold2.losses import mean_terms, total_loss
from model.training.alphafold2.network import initial_recycled_batch, run_network
from model.training.data.data import ChainSet, Split
from model.training.data.sampling import MicroBatch, Sampler, load_batches
from model.training.runtime.checkpoint import (
    FULL_NAME,
    MANIFEST,
    PORTABLE_FOLDER,
    Progress,
    load_full,
    load_portable_checkpoint,
    save_full,
    save_portable_checkpoint,
    stored_progress,
)
from model.training.runtime.execution import kernels_for_device, make_execution
from model.training.runtime.initialization import copy_trained, initialize
from model.training.runtime.parameters import MOMENTS, FlatParameters, adam_step
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings, learning_rate
from model.training.runtime.step import StepGradient, StepGraphs
from model.training.validation import SCORES, HeldOutSet, validate
from msa.base.atomic import errors_name

METRICS = "metrics.jsonl"
# gradient norms whose median a spike is compared with
RECENT_NORMS = 200
MIN_NORMS = 50
# longest time that `save_before_exit` waits for an update or a checkpoint to end
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class StepReport:
    """The results of one optimiser step.

    Args:
        step: number of steps done, this one included.
        total_steps: number of steps of the run.
        terms: mean of each loss term over this process's samples, and their weighted sum as `loss`.
        gradient_norm: norm of the gradient before clipping; the mean of their norms if the gradients of
            micro-batches are clipped.
        skipped: True if the step changed nothing, because its gradient was not finite or a spike.
        learning_rate: learning rate of the step.
        seconds: wall time of the step.
        waited: part of `seconds` spent waiting for samples.
        samples_per_second: speed of all processes together.
        recycles: number of passes before the one that was trained; None if each sample has its own.
        validation: scores on the held-out chains, by set, if a validation followed the step.
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
    validation: dict[str, dict[str, float]] | None = None


def append_metrics(run: Path, entry: dict[str, object]) -> None:
    """Add a line to the metrics of a run."""
    path = run / METRICS
    with errors_name(path), path.open("a") as stream:
        stream.write(json.dumps(entry) + "\n")


class Trainer:
    """A training run on chains, divided by `split` into training and held-out ones.

    Worker processes that make samples are started first, before anything uses a GPU. Checkpoints and metrics
    are written to the folder `run`, or nothing if None; with `resume`, the run continues from the checkpoint
    in it, if there is one. `on_compilation` is called before a step that compiles, with the residues of its
    crops.

    Attributes:
        is_compiling: whether the current step has to compile, which may take minutes.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        chains: ChainSet,
        split: Split,
        run: Path | None,
        processes: TrainingProcesses,
        resume: bool = False,
        on_compilation: Callable[[int], None] = lambda residues: None,
    ) -> None:
        self._on_compilation = on_compilation
        self.is_compiling = False
        # sizes that were compiled for
        self._compiled: set[object] = set()
        self._state_lock = Lock()  # held while parameters and progress change, or are written
        self.settings, self.run, self.processes = settings, run, processes
        self.sampler = Sampler(chains, split, settings.sampling, settings.seed)
        limit = settings.validation_chains
        held_out = (
            HeldOutSet("without_relative", split.without_relative[:limit]),
            HeldOutSet("distant_template", split.distant_template[:limit]),
        )
        self.held_out = tuple(each for each in held_out if len(each.chains))
        for number, phase in enumerate(settings.phases):
            if settings.batch % (phase.micro_batch * processes.count):
                raise ConfigError(
                    f"phases[{number}].micro_batch: {processes.count} × {phase.micro_batch} samples do not "
                    f"divide the batch of {settings.batch}"
                )
        start = stored_progress(run).step if resume and run is not None else 0
        self._batches = load_batches(
            self.sampler, self._plan(start), settings.workers, pin_memory=processes.device.type == "cuda"
        )
        self._next_batch = next(self._batches)
        device = processes.device
        if device.type == "cuda":
            torch.cuda.set_device(device)
            # matrix products of the structure module; its geometry is elementwise and stays in float32
            torch.set_float32_matmul_precision("high")
        self.execution = make_execution(settings, device)
        load_tables(device)
        self.network = AlphaFold(
            settings.network, select_kernels(kernels_for_device(settings, device), device)
        )
        initialize(self.network, settings.seed)
        if settings.initial_network and not start:
            copy_trained(self.network, settings.network, settings.initial_network)
        self.flat = FlatParameters(self.network, device)
        self.moments = {name: torch.zeros_like(self.flat.values) for name in MOMENTS}
        self.progress = Progress()
        if resume and run is not None:
            self.progress = self._load(run)
        self._graphs: StepGraphs | None = None
        if settings.cuda_graphs and device.type == "cuda":
            self._graphs = StepGraphs(self._add_gradients, device)
        self._saved_step = self.progress.step
        self._norms: deque[float] = deque(maxlen=RECENT_NORMS)
        self._last_phase: Phase | None = None
        self._skipped = 0
        self._stop = False
        self._gradient = StepGradient(self.flat, settings, processes)

    def request_stop(self) -> None:
        """Stop after the current step; signal handlers may call it."""
        self._stop = True

    def train(self, max_seconds: float | None = None, max_steps: int | None = None) -> Iterator[StepReport]:
        """Train until the last step, a limit or a request to stop; write checkpoints at the end.

        Training stops after the first step that ends `max_seconds` after the call, or after `max_steps`.

        Yields:
            A report after each step, on every process.

        Raises:
            TrainingDiverged: too many consecutive steps were skipped.
        """
        self._stop = False
        begin = last = time.monotonic()
        earlier_seconds, first_step = self.progress.seconds, self.progress.step
        while self.progress.step < self.settings.total_steps and not self._stopping:
            report = self._step()
            now = time.monotonic()
            self.progress = replace(self.progress, seconds=earlier_seconds + now - begin)
            rate = self.settings.batch / (now - last)
            report = replace(report, seconds=now - last, samples_per_second=rate)
            last = now
            self._write_metrics({"kind": "step", **asdict(report)})
            # no `|=`, which could undo a request that a signal makes meanwhile
            if max_seconds is not None and now - begin > max_seconds:
                self._stop = True
            if max_steps is not None and self.progress.step - first_step >= max_steps:
                self._stop = True
            if self.held_out and self._is_due(self.settings.validate_every):
                report = replace(report, validation=self.validate())
            yield report
            if self._is_due(self.settings.checkpoint_every) and not self._stopping:
                self.save()
            if report.validation or self._is_due(self.settings.checkpoint_every):
                last = time.monotonic()
        self.save()

    def validate(self) -> dict[str, dict[str, float]]:
        """Score the averaged parameters on the held-out chains; return and write the scores by set.

        Sets without chains are left out.
        """
        phase = self.settings.phase_at(max(0, self.progress.step - 1))
        begin = time.monotonic()
        results = {}
        with self._compilation(phase, "validation"), self._state_lock, self.flat.using_average():
            for held_out in self.held_out:
                sums = validate(
                    self.network,
                    self.sampler,
                    held_out,
                    phase.crop,
                    phase.micro_batch,
                    self.execution,
                    self.processes.device,
                    self.processes.rank,
                    self.processes.count,
                )
                self.processes.add(sums)
                *totals, count = sums.tolist()
                results[held_out.name] = {
                    name: total / max(count, 1.0) for name, total in zip(SCORES, totals, strict=True)
                }
        seconds = time.monotonic() - begin
        self._write_metrics({"kind": "validation", "step": self.progress.step, "seconds": seconds, **results})
        return results

    def save(self) -> None:
        """Write a full and a portable checkpoint; only the first process does."""
        with self._state_lock:
            self._write_checkpoint()

    def save_before_exit(self) -> None:
        """Write a checkpoint of the last step that has ended, from any thread.

        Nothing is written if there is one already, or if a validation uses the parameters.
        """
        if self._state_lock.acquire(timeout=_LOCK_SECONDS):
            try:
                if self.progress.step != self._saved_step:
                    self._write_checkpoint()
            finally:
                self._state_lock.release()

    def _write_checkpoint(self) -> None:
        if self.run is None or self.processes.rank:
            return
        config = self.settings.network
        save_full(self.run, self.flat, self.moments, config, self.progress)
        save_portable_checkpoint(self.run / PORTABLE_FOLDER, self.flat, config, self.progress)
        self._saved_step = self.progress.step

    @contextlib.contextmanager
    def _compilation(self, phase: Phase, variant: str) -> Iterator[None]:
        """Say that the network is compiled in this context, if this is the first one of its sizes."""
        key = phase.crop, phase.micro_batch, variant
        compiles = self.execution.compile or self.processes.device.type == "cuda"
        if not compiles or key in self._compiled:
            yield
            return
        self._on_compilation(phase.crop)
        self.is_compiling = True
        try:
            yield
        finally:
            self.is_compiling = False
        self._compiled.add(key)

    def _load(self, run: Path) -> Progress:
        config = self.settings.network
        if (run / FULL_NAME).exists():
            return load_full(run, self.flat, self.moments, config)
        if (run / PORTABLE_FOLDER / MANIFEST).exists():
            return load_portable_checkpoint(run / PORTABLE_FOLDER, self.flat, config)
        return Progress()

    def _plan(self, step: int) -> Iterator[MicroBatch]:
        """Yield this process's micro-batches from a step on."""
        count, rank, batch = self.processes.count, self.processes.rank, self.settings.batch
        while True:
            phase = self.settings.phase_at(step)
            for start in range(rank * phase.micro_batch, batch, count * phase.micro_batch):
                first = step * batch + start
                yield MicroBatch(first, phase.micro_batch, phase.crop, phase.clamped_rate)
            step += 1

    def _step(self) -> StepReport:
        settings, step = self.settings, self.progress.step
        phase = settings.phase_at(step)
        if phase is not self._last_phase:
            # norms of another phase's losses are not comparable
            self._norms.clear()
            self._last_phase = phase
        # dropout depends only on seed, step and process, so checkpoints need no state of a generator
        torch.manual_seed((settings.seed * 1_000_003 + step) * 1_009 + self.processes.rank)
        recycles = int(np.random.default_rng([settings.seed, step]).integers(settings.max_recycles + 1))
        self._gradient.reset()
        waited = 0.0
        sums: dict[str, torch.Tensor] = {}
        num_micro_batches = settings.batch // (phase.micro_batch * self.processes.count)
        for _ in range(num_micro_batches):
            batch = self._next_batch
            with self._compilation(phase, "recycled" if recycles else "single pass"):
                micro_batch_terms = self._backward(batch, phase, recycles)
            for name, value in micro_batch_terms.items():
                value = value / num_micro_batches
                sums[name] = sums[name] + value if name in sums else value
            # fetch the next batch while the GPU works
            begin = time.monotonic()
            self._next_batch = next(self._batches)
            waited += time.monotonic() - begin
        norm = self._gradient.reduce(self._stop)
        rate = learning_rate(settings, step, self.progress.moments_from)
        skipped = self._is_spike(norm)
        if skipped:
            self._skipped += 1
            if self._skipped > settings.optimizer.max_skipped:
                raise TrainingDiverged(
                    f"{self._skipped} steps in a row had a gradient that was not finite or a spike "
                    f"(norm {norm:.3g} at step {step})"
                )
        else:
            self._skipped = 0
            self._norms.append(norm)
            self._gradient.clip(norm)
        with self._state_lock:
            if not skipped:
                self._update(rate, step + 1 - self.progress.moments_from)
            samples = self.progress.samples + settings.batch
            self.progress = replace(self.progress, step=step + 1, samples=samples)
        return StepReport(
            step=step + 1,
            total_steps=settings.total_steps,
            terms={name: float(value) for name, value in sums.items()},
            gradient_norm=norm,
            skipped=skipped,
            learning_rate=rate,
            seconds=0.0,
            waited=waited,
            samples_per_second=0.0,
            recycles=recycles,
        )

    def _backward(
        self, batch: Mapping[str, torch.Tensor], phase: Phase, recycles: int
    ) -> dict[str, torch.Tensor]:
        """Copy a micro-batch to the device, and add its gradients; return its mean loss terms."""
        device = self.processes.device
        tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        if self._graphs is not None:
            return self._graphs(tensors, phase, recycles)
        return self._add_gradients(tensors, phase, recycles)

    def _add_gradients(
        self, tensors: Mapping[str, torch.Tensor], phase: Phase, recycles: int
    ) -> dict[str, torch.Tensor]:
        """Add the gradients of a micro-batch on the device; return its mean loss terms."""
        execution = self.execution
        dropout = torch.ones((), device=self.processes.device)
        with torch.no_grad():
            features, targets = network_features(tensors, execution.dtype), make_targets(tensors)
            recycled = initial_recycled_batch(self.network, features, execution.dtype)
            for _ in range(recycles):
                recycled = run_network(self.network, features, recycled, dropout, execution).recycled
        output = run_network(self.network, features, recycled, dropout, execution)
        losses, terms = total_loss(output, targets, phase.losses, execution)
        self._gradient.add(losses)
        return mean_terms({"loss": losses, **terms})

    def _is_spike(self, norm: float) -> bool:
        if not math.isfinite(norm):
            return True
        if len(self._norms) < MIN_NORMS:
            return False
        return norm > self.settings.optimizer.spike_factor * statistics.median(self._norms)

    def _update(self, rate: float, count: int) -> None:
        """Make one step of Adam, the `count`th since the moments were zero, and update the average."""
        options = self.settings.optimizer
        adam_step(self.flat, self.moments, rate, count, options.beta1, options.beta2, options.epsilon)
        self.flat.update_average(options.ema_decay, self.progress.step + 1)

    @property
    def _stopping(self) -> bool:
        """True if a process had requested a stop by the last exchange; a single process needs no exchange."""
        if self.processes.count == 1:
            return self._stop
        return self._gradient.stop_requested

    def _is_due(self, every: int) -> bool:
        return bool(every) and self.progress.step % every == 0

    def _write_metrics(self, entry: dict[str, object]) -> None:
        if self.run is not None and self.processes.rank == 0:
            append_metrics(self.run, entry)
