"""The gradient of an optimiser step, the guard against spikes, and the CUDA graphs of micro-batches.

The gradient is summed over micro-batches and processes, and clipped. With graphs, small crops are not bound
by kernel launches.
"""

import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

from model.errors import TrainingDiverged
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import OptimizerSettings, Phase, TrainingRunSettings

# keeps the factor of a gradient of zeros finite
_SMALLEST_NORM = 1e-12
# gradient norms whose median a spike is compared with
RECENT_NORMS = 200
MIN_NORMS = 50

Tensors = Mapping[str, torch.Tensor]
Terms = dict[str, torch.Tensor]
Backward = Callable[..., Terms]
# calls with the same arguments before they are captured: they compile functions and allocate workspaces
EAGER_CALLS = 2


@dataclass(frozen=True)
class StepPlan:
    """The plan of a step: all that its passes depend on, except for the samples.

    Args:
        micro_batches: backward passes of each process.
        phase: part of the training; None if there is only one.
        recycles: number of passes before the one that is trained; None if each sample has its own.
    """

    micro_batches: int
    phase: Phase | None = None
    recycles: int | None = None


class StepGradient:
    """The gradient of a step: the mean over the samples of all processes, in `FlatParameters.gradients`.

    Backward passes add to these gradients. Either the gradient's own norm is limited, or that of each
    micro-batch before they are averaged, which for micro-batches of one sample is the clipping of AlphaFold2
    (supplement 1.11.3). To clip each sample of larger micro-batches would need a backward pass for each
    sample.

    Only `reduce` waits for the device.
    """

    def __init__(
        self, flat: FlatParameters, settings: TrainingRunSettings, processes: TrainingProcesses
    ) -> None:
        self._flat, self._processes, self._batch = flat, processes, settings.batch
        self._clip_norm = settings.adam.clip_norm
        self._clips_micro_batches = settings.adam.clip_each == "micro_batch"
        # the sum of clipped gradients, if a process has several in a step
        self._clipped: torch.Tensor | None = None
        self.forget_stop()

    def forget_stop(self) -> None:
        """Forget that a process has requested a stop."""
        self._stop_votes = torch.zeros(())

    @property
    def stop_requested(self) -> bool:
        """True if a process had requested a stop by the last call of `reduce`."""
        return bool(self._stop_votes > 0)

    def reset(self, micro_batches: int) -> None:
        """Begin a step with a number of micro-batches."""
        self._flat.sums.zero_()
        if self._clipped is not None:
            self._clipped.zero_()
        elif self._clips_micro_batches and micro_batches > 1:
            self._clipped = torch.zeros_like(self._flat.gradients)

    def add(self, losses: torch.Tensor) -> None:
        """Add the gradient of the losses of a micro-batch, [number of samples]."""
        gradient = self._flat.gradients
        if not self._clips_micro_batches:
            (losses.sum() / self._batch).backward()
            return
        gradient.zero_()
        losses.mean().backward()
        share = len(losses) / self._batch
        norm = torch.linalg.vector_norm(gradient)
        factor = (self._clip_norm / (norm + _SMALLEST_NORM)).clamp(max=1.0) * share
        if self._clipped is None:
            gradient.mul_(factor)
        else:
            self._clipped.addcmul_(gradient, factor)
        self._flat.sums[-2] += norm * share

    def reduce(self, stop: bool) -> float:
        """Sum the gradient over all processes; return its norm before clipping.

        If micro-batches are clipped, it is the mean of their norms: the mean of the clipped gradients would
        not show spikes.

        Args:
            stop: True if this process requests a stop.
        """
        gradient, sums = self._flat.gradients, self._flat.sums
        if self._clipped is not None:
            gradient.copy_(self._clipped)
        sums[-1] = float(stop)
        # takes about a millisecond per step, so it does not overlap with the backward pass
        self._processes.add(sums)
        self._stop_votes = sums[-1].clone()
        return float(sums[-2] if self._clips_micro_batches else torch.linalg.vector_norm(gradient))

    def clip(self, norm: float) -> None:
        """Clip the gradient unless its micro-batches have been clipped."""
        if not self._clips_micro_batches:
            self._flat.gradients.mul_(min(1.0, self._clip_norm / (norm + _SMALLEST_NORM)))


class GradientGuard:
    """The decision to skip steps whose gradient is not finite or a spike.

    Args:
        options: settings of the optimiser.
        norms: norms of the last gradients of a continued run.
        skipped: number of steps that were skipped in a row.
        phase: phase of these steps.
    """

    def __init__(
        self,
        options: OptimizerSettings,
        norms: Sequence[float] = (),
        skipped: int = 0,
        phase: Phase | None = None,
    ) -> None:
        self._options = options
        self._norms = deque(norms, maxlen=RECENT_NORMS)
        self._phase = phase
        self._skipped = skipped

    @property
    def norms(self) -> tuple[float, ...]:
        """The norms that the next one is compared with, oldest first."""
        return tuple(self._norms)

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped in a row."""
        return self._skipped

    def skips(self, norm: float, step: int, phase: Phase | None) -> bool:
        """Return whether a step is skipped because of the norm of its gradient.

        Raises:
            TrainingDiverged: too many consecutive steps were skipped.
        """
        if phase is not self._phase:
            # norms of another phase's losses are not comparable
            self._norms.clear()
            self._phase = phase
        most = math.inf
        if len(self._norms) >= MIN_NORMS:
            most = self._options.spike_factor * statistics.median(self._norms)
        # an infinite factor of a median of 0 is not a number
        if math.isfinite(norm) and not norm > most:
            self._skipped = 0
            self._norms.append(norm)
            return False
        self._skipped += 1
        if self._skipped > self._options.max_skipped:
            cause, remedy = "that was not finite", ""
            if math.isfinite(norm):
                cause, remedy = "that was not finite or a spike", ", raise spike_factor,"
            raise TrainingDiverged(
                f"{self._skipped} steps in a row had a gradient {cause} (norm {norm:.3g} at step {step}). A "
                "continued run repeats them with the same settings: lower learning_rate"
                f"{remedy} or continue from a copy of an earlier checkpoint"
            )
        return True


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    terms: Terms


class StepGraphs:
    """A function that adds the gradients of a micro-batch, captured once for each of its other arguments.

    Results are those of calling the function itself, random numbers included: a replay reads the seed and
    the offset of the default generator, as the launches would. Graphs share one memory pool, since only one
    of them runs at a time.

    Args:
        backward: takes a micro-batch and hashable arguments, on which its shapes may depend, adds gradients
            to tensors that stay in the same memory, and returns loss terms. It may neither wait for the GPU
            nor copy from the CPU.
        device: the GPU.
    """

    def __init__(self, backward: Backward, device: torch.device) -> None:
        self._backward = backward
        # capturing needs a stream other than the default one, and autograd must have seen no other
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._calls: Counter[tuple[Hashable, ...]] = Counter()
        self._graphs: dict[tuple[Hashable, ...], _Captured] = {}

    def __call__(self, batch: Tensors, *key: Hashable) -> Terms:
        """Add the gradients of a micro-batch; return loss terms, which the next call does not change.

        Shapes and dtypes of the batch, which is on the GPU, depend on the other arguments alone.
        """
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            if self._calls[key] < EAGER_CALLS:
                self._calls[key] += 1
                terms = self._backward(batch, *key)
            else:
                if key not in self._graphs:
                    self._graphs[key] = self._capture(batch, key)
                captured = self._graphs[key]
                for name, tensor in captured.inputs.items():
                    tensor.copy_(batch[name])
                captured.graph.replay()
                terms = {name: value.clone() for name, value in captured.terms.items()}
        current.wait_stream(self._stream)
        for value in (*batch.values(), *terms.values()):
            value.record_stream(self._stream)
            value.record_stream(current)
        return terms

    def _capture(self, batch: Tensors, key: tuple[Hashable, ...]) -> _Captured:
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        # thread_local: the thread that pins the next batch's memory may go on during the capture
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            terms = self._backward(inputs, *key)
        return _Captured(graph, inputs, terms)
